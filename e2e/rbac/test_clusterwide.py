"""An operator of the whole cluster, with what the chart gives it there and nothing else.

It is started before the CRD is there, as when somebody else installs that: kopf then follows the CRDs as they come.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from paternoster_e2e.fake_node import FakeNode
from paternoster_e2e.kubectl import Kubectl, until
from paternoster_e2e.local_operator import LocalOperator, leader, running
from paternoster_e2e.objects import CRD, apply_crd, scratch_namespace
from paternoster_e2e.permissions import ChartPermissions, Permission, grant, revoke
from paternoster_e2e.scenario import STAGES, Scenario
from paternoster_e2e.stub_engine import StubEngines

CRDS = "apiextensions.k8s.io"
NEEDED = [Permission(CRDS, "customresourcedefinitions", verb) for verb in ("list", "watch")]
"""What the whole cluster asks for and one namespace does not."""

Start = Callable[[Permission | None], LocalOperator]


@pytest.fixture
def home(kubectl: Kubectl) -> Iterator[str]:
    """The operators' own namespace; not where the fleet is."""
    with scratch_namespace(kubectl, "rbac-home") as name:
        yield name


@pytest.fixture
def start(kubectl: Kubectl, clusterwide: ChartPermissions, home: str, tmp_path: Path) -> Iterator[Start]:
    """Start an operator with the chart's permissions, or all but one of them."""
    with ExitStack() as stack:

        def start(left_out: Permission | None) -> LocalOperator:
            account = (home, f"without-{left_out.verb}" if left_out else "operator")
            permissions = clusterwide.without(left_out)
            stack.callback(revoke, kubectl, account)
            grant(kubectl, account, permissions.lease, home)
            grant(kubectl, account, permissions.operator, None)
            folder = tmp_path / account[1]
            folder.mkdir()
            words = ["--all-namespaces", *leader(home, permissions)]
            return stack.enter_context(running(LocalOperator(kubectl, account, folder, *words)))

        yield start


@pytest.fixture
def without_crd(kubectl: Kubectl) -> Iterator[None]:
    """Deletes no fleet of anybody: there must be none."""
    if kubectl("get", "crd", CRD, "--ignore-not-found"):
        until(lambda: not kubectl("get", "llmd", "--all-namespaces", "--output=name"), "no LLMDeployment anywhere")
        kubectl("delete", "crd", CRD, "--wait")
    yield
    apply_crd(kubectl)


def test_the_chart_gives_nothing_else(clusterwide: ChartPermissions, namespaced: ChartPermissions) -> None:
    assert set(clusterwide.operator) - set(namespaced.operator) == set(NEEDED)
    assert set(namespaced.operator) <= set(clusterwide.operator)
    assert clusterwide.lease == namespaced.lease


def test_the_charts_rules_are_enough_and_needed(
    kubectl: Kubectl,
    node: FakeNode,
    engines: StubEngines,
    clusterwide: ChartPermissions,
    without_crd: None,
    home: str,
    start: Start,
) -> None:
    with scratch_namespace(kubectl, "rbac") as namespace:
        scenario = Scenario(kubectl, node, engines, namespace, (home, clusterwide.lease_name))
        operator = start(None)
        until(lambda: "Unresolved resources" in operator.log, "kopf misses the CRD")
        scenario.pass_all(("lead",))
        handicapped = {permission: start(permission) for permission in NEEDED}
        for permission, one in handicapped.items():
            until(lambda one=one, permission=permission: permission.refusal in one.log, f"refused: {permission}")

        apply_crd(kubectl)
        scenario.create()
        scenario.pass_all(STAGES[:-1])
        assert operator.models() == {scenario.name}
        assert operator.refusals == []
        for permission, one in handicapped.items():
            assert not one.models(), f"needs no {permission}"
        scenario.pass_all(STAGES[-1:])
