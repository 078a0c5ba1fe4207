"""An operator of the whole cluster, with what the chart gives it there and nothing else.

It is started before the CRD is there, as when somebody else installs that, and lives through its end and its return.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from paternoster_e2e.fakes.engine import FakeEngines
from paternoster_e2e.fakes.fake_node import FakeNode
from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.local_operator import LocalOperator, chart_flags, running
from paternoster_e2e.objects import CRD, apply_crd, scratch_namespace
from paternoster_e2e.permissions import ChartPermissions, grant, revoke
from paternoster_e2e.scenario import STAGES, Scenario


@pytest.fixture
def home(kubectl: Kubectl) -> Iterator[str]:
    """The operator's own namespace; not where the fleet is."""
    with scratch_namespace(kubectl, "rbac-home") as name:
        yield name


@pytest.fixture
def operator(kubectl: Kubectl, clusterwide: ChartPermissions, home: str, tmp_path: Path) -> Iterator[LocalOperator]:
    account = (home, "operator")
    grant(kubectl, account, clusterwide.lease, home)
    grant(kubectl, account, clusterwide.operator, None)
    yield LocalOperator(
        kubectl,
        account,
        tmp_path,
        "--all-namespaces",
        *chart_flags(home, clusterwide),
    )
    revoke(kubectl, account)


def delete_crd(kubectl: Kubectl) -> None:
    """Deletes no user's fleet: there must be none."""
    until(lambda: not kubectl("get", "llmd", "--all-namespaces", "--output=name"), "no LLMDeployment anywhere")
    kubectl("delete", "crd", CRD, "--wait")


def test_the_chart_gives_what_one_namespace_needs(clusterwide: ChartPermissions, namespaced: ChartPermissions) -> None:
    assert set(clusterwide.operator) == set(namespaced.operator)
    assert clusterwide.lease == namespaced.lease


def test_the_crd_comes_late_goes_and_comes_back(
    kubectl: Kubectl,
    node: FakeNode,
    engines: FakeEngines,
    crd: None,
    clusterwide: ChartPermissions,
    home: str,
    operator: LocalOperator,
) -> None:
    with scratch_namespace(kubectl, "rbac") as namespace:
        scenario = Scenario(kubectl, node, engines, namespace, (home, clusterwide.lease_name))
        delete_crd(kubectl)
        with running(operator):
            try:
                until(lambda: "waiting for its CRD" in operator.log, "the CRD is missed")
                apply_crd(kubectl)
                scenario.create()
                scenario.pass_all(STAGES)
                assert operator.refusals == []
                delete_crd(kubectl)
            finally:
                apply_crd(kubectl)
            scenario.create()
            scenario.pass_all(("service", "budget", "deployment", "ready", "gone"))
