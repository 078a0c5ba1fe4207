"""A namespace that is deleted with a fleet in it: the operator ends its work there without a fault."""

from pathlib import Path

import pytest

from paternoster_e2e.fakes.engine import FakeEngines
from paternoster_e2e.fakes.fake_node import FakeNode
from paternoster_e2e.kubectl import CommandError, Kubectl, until
from paternoster_e2e.local_operator import LocalOperator, chart_flags, running
from paternoster_e2e.objects import scratch_namespace
from paternoster_e2e.permissions import ChartPermissions, grant, revoke
from paternoster_e2e.scenario import Scenario

pytestmark = pytest.mark.timeout(600)


def test_a_namespace_that_ends_with_its_fleet_is_no_fault(
    kubectl: Kubectl, node: FakeNode, engines: FakeEngines, crd: None, clusterwide: ChartPermissions, tmp_path: Path
) -> None:
    with scratch_namespace(kubectl, "home") as home:
        account = (home, "operator")
        grant(kubectl, account, clusterwide.lease, home)
        grant(kubectl, account, clusterwide.operator, None)
        operator = LocalOperator(kubectl, account, tmp_path, "--all-namespaces", *chart_flags(home, clusterwide))
        with running(operator):
            for ends in ("ends-first", "ends-second", "ends-third"):
                kubectl("create", "namespace", ends)
                fleet = Scenario(kubectl, node, engines, ends, (home, clusterwide.lease_name), name=ends)
                fleet.create()
                fleet.pass_all(("deployment", "ready"))
                kubectl("delete", "namespace", ends, "--wait=false")
                until(lambda ends=ends: is_gone(kubectl, ends), f"{ends} is gone", 120)  # type: ignore[misc]
        revoke(kubectl, account)
    assert "Traceback" not in operator.log
    assert "terminated" not in operator.log


def is_gone(kubectl: Kubectl, namespace: str) -> bool:
    try:
        kubectl("get", "namespace", namespace)
    except CommandError as error:
        return "not found" in str(error)
    return False
