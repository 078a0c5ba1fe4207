"""No permission of the operator is superfluous: without any of them the scenario ends at a known stage, or is stalled.

An operator runs for each permission left out, several at a time. It is at the stage that the permission is for when
its log has the refusal, and it must not get beyond: work done in spite of a refusal would need no permission.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from paternoster_e2e.fakes.engine import FakeEngines
from paternoster_e2e.fakes.fake_node import FakeNode
from paternoster_e2e.kubectl import Kubectl, condition, until
from paternoster_e2e.local_operator import namespaced_operator
from paternoster_e2e.objects import scratch_namespace
from paternoster_e2e.permissions import ChartPermissions, Permission
from paternoster_e2e.scenario import STAGES, Scenario

AT_ONCE = 3
STAY_SECONDS = 6
"""More than the time between two looks of the operator."""

LLMD, LEASES = "paternoster.dev", "coordination.k8s.io"
ENDS_AT = {
    (LEASES, "leases", "create"): "lead",
    (LEASES, "leases", "get"): "lead",
    (LEASES, "leases", "update"): "renew",
    (LLMD, "llmdeployments", "list"): "keys",
    (LLMD, "llmdeployments/status", "patch"): "keys",
    (LLMD, "llmdeployments/finalizers", "update"): "keys",
    ("apps", "deployments", "get"): "deployment",
    ("apps", "deployments", "list"): "keys",
    ("apps", "deployments", "create"): "deployment",
    ("apps", "deployments", "patch"): "deployment",
    ("", "services", "get"): "service",
    ("", "services", "list"): "keys",
    ("", "services", "create"): "service",
    ("", "services", "patch"): "service",
    ("policy", "poddisruptionbudgets", "get"): "budget",
    ("policy", "poddisruptionbudgets", "list"): "keys",
    ("policy", "poddisruptionbudgets", "create"): "budget",
    ("policy", "poddisruptionbudgets", "patch"): "budget",
    ("networking.k8s.io", "networkpolicies", "get"): "policy",
    ("networking.k8s.io", "networkpolicies", "list"): "keys",
    ("networking.k8s.io", "networkpolicies", "create"): "policy",
    ("networking.k8s.io", "networkpolicies", "patch"): "policy",
    ("apps", "replicasets", "list"): "keys",
    ("", "secrets", "get"): "keys",
    ("", "secrets", "create"): "keys",
    ("", "secrets", "patch"): "keys",
    ("", "pods", "list"): "keys",
    ("", "pods", "patch"): "price",
    ("events.k8s.io", "events", "create"): "event",
    ("events.k8s.io", "events", "list"): "mount",
}
"""(API group, resource, verb) -> the first stage that is not reached without it."""

WATCHES = (
    (LLMD, "llmdeployments", "watch"),
    ("apps", "deployments", "watch"),
    ("", "services", "watch"),
    ("policy", "poddisruptionbudgets", "watch"),
    ("networking.k8s.io", "networkpolicies", "watch"),
    ("apps", "replicasets", "watch"),
    ("", "pods", "watch"),
)
"""Without one of them the operator lists in place of the watch, and the fleet is stalled for it."""

RECORD_OF_NAMES = {("", "configmaps", verb) for verb in ("get", "create", "update")}
"""Which fleet has which served name: e2e/trust/test_names.py needs them."""

LONGEST_FIRST = [*sorted(ENDS_AT, key=lambda it: -STAGES.index(ENDS_AT[it])), *WATCHES]

OTHER_WORDS = {
    (LEASES, "leases", "get"): "Error retrieving resource lock",
    (LLMD, "llmdeployments/finalizers", "update"): "cannot set blockOwnerDeletion",
}
"""What the log says where it does not name the permission that is missing."""

Probes = dict[tuple[str, str, str], Future[None]]


@pytest.fixture(scope="module")
def probes(
    kubectl: Kubectl,
    node: FakeNode,
    engines: FakeEngines,
    crd: None,
    namespaced: ChartPermissions,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Probes]:
    """All of them, begun; the longest first."""

    def probe(permission: Permission, stage: str | None) -> None:
        with scratch_namespace(kubectl, "rbac") as namespace:
            scenario = Scenario(kubectl, node, engines, namespace, (namespace, namespaced.lease_name))
            folder = tmp_path_factory.mktemp("operator")
            if stage is None:
                stalls(scenario, namespaced, permission, folder)
            else:
                ends_at(scenario, stage, namespaced, permission, folder)

    permissions = {key(permission): permission for permission in [*namespaced.operator, *namespaced.lease]}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {it: pool.submit(probe, permissions[it], ENDS_AT.get(it)) for it in LONGEST_FIRST if it in permissions}
        pool.shutdown(cancel_futures=True)


def test_the_chart_gives_nothing_else(namespaced: ChartPermissions) -> None:
    given = {key(permission) for permission in [*namespaced.operator, *namespaced.lease]}
    assert given == {*ENDS_AT, *WATCHES} | RECORD_OF_NAMES


@pytest.mark.parametrize("permission", LONGEST_FIRST, ids=lambda key: f"{key[2]} {key[1]}")
def test_without_it_the_scenario_ends(probes: Probes, permission: tuple[str, str, str]) -> None:
    probes[permission].result()


def ends_at(scenario: Scenario, stage: str, permissions: ChartPermissions, left_out: Permission, folder: Path) -> None:
    """Pass every stage before ``stage``; meet the refusal there, and stay."""
    scenario.create()
    with namespaced_operator(scenario.kubectl, permissions.without(left_out), scenario.namespace, folder) as operator:
        scenario.pass_all(STAGES[: STAGES.index(stage)])
        scenario.begin(stage)
        words = OTHER_WORDS.get(key(left_out), left_out.refusal)
        try:
            until(lambda: words in operator.log, f"refused: {left_out}")
        except AssertionError:
            if left_out.resource.endswith("/finalizers") and "KUBECONFIG" in os.environ and scenario.reached(stage):
                pytest.skip("this cluster's admission does not ask for the permission on finalizers")
            raise
        time.sleep(STAY_SECONDS)
        assert not scenario.reached(stage), f"needs no {left_out}"


def stalls(scenario: Scenario, permissions: ChartPermissions, left_out: Permission, folder: Path) -> None:
    """Meet the refusal of a watch, and state it of the fleet."""
    scenario.create()
    with namespaced_operator(scenario.kubectl, permissions.without(left_out), scenario.namespace, folder) as operator:
        until(lambda: left_out.refusal in operator.log, f"refused: {left_out}")

        def is_stalled() -> bool:
            fleet = scenario.kubectl.get("llmd", scenario.name, scenario.namespace)
            return condition(fleet, "Stalled").get("reason") == "WatchFailed"

        until(is_stalled, f"stalled without {left_out}")


def key(permission: Permission) -> tuple[str, str, str]:
    return permission.group, permission.resource, permission.verb
