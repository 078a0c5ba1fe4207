"""Fields that others set in the children of a fleet: removed and named, and named where they come back each time."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from paternoster_e2e.fakes.engine import FakeEngines
from paternoster_e2e.fakes.fake_node import FakeNode
from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.local_operator import namespaced_operator
from paternoster_e2e.objects import merge, scratch_namespace
from paternoster_e2e.permissions import ChartPermissions
from paternoster_e2e.scenario import Scenario

pytestmark = pytest.mark.timeout(600)
ADDED = {
    "metadata": {"annotations": {"who": "me"}},
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "hostPID": True,
        "dnsPolicy": "Default",
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "initContainers": [{"name": "before", "image": "busybox"}],
        "containers": [
            {"name": "engine", "env": [{"name": "FOO", "value": "bar"}], "stdin": True},
            {"name": "beside", "image": "busybox"},
        ],
    },
}


@pytest.fixture
def fleet(
    kubectl: Kubectl, node: FakeNode, engines: FakeEngines, crd: None, namespaced: ChartPermissions, tmp_path: Path
) -> Iterator[Scenario]:
    """Two replicas that serve, and an operator."""
    with scratch_namespace(kubectl, "foreign") as namespace:
        scenario = Scenario(kubectl, node, engines, namespace, (namespace, namespaced.lease_name))
        scenario.create()
        with namespaced_operator(kubectl, namespaced, namespace, tmp_path):
            scenario.pass_all(("lead", "deployment", "ready"))
            yield scenario


def deployment(fleet: Scenario) -> Document:
    return fleet.kubectl.get("deployment", fleet.name, fleet.namespace)


def warnings(fleet: Scenario, reason: str) -> str:
    """All events of that reason, in words."""
    events = fleet.kubectl.list("events.events.k8s.io", fleet.namespace)
    return "\n".join(event["note"] for event in events if event["reason"] == reason)


def read_sequences(fleet: Scenario) -> list[str]:
    """``--max-num-seqs`` of each pod that is not being deleted."""
    words = [pod["spec"]["containers"][0]["args"] for pod in fleet.pods() if "deletionTimestamp" not in pod["metadata"]]
    return [args[args.index("--max-num-seqs") + 1] if "--max-num-seqs" in args else "" for args in words]


def pause(fleet: Scenario) -> None:
    fleet.kubectl("rollout", "pause", f"deployment/{fleet.name}", f"--namespace={fleet.namespace}")


def is_paused(fleet: Scenario) -> bool:
    return "paused" in deployment(fleet)["spec"]


def test_a_paused_rollout_goes_on_and_who_paused_it_is_named(fleet: Scenario) -> None:
    pause(fleet)
    merge(fleet.kubectl, "llmd", fleet.namespace, fleet.name, {"spec": {"engine": {"maxNumSeqs": 24}}})
    until(lambda: read_sequences(fleet) == ["24", "24"], "both replicas are new", 120)
    assert not is_paused(fleet)
    assert "spec.paused (set by kubectl-rollout)" in warnings(fleet, "ForeignFieldsRemoved")


def test_all_that_another_manager_adds_is_removed_and_named(fleet: Scenario) -> None:
    before = deployment(fleet)["spec"]
    fleet.kubectl(
        "patch", "deployment", fleet.name, f"--namespace={fleet.namespace}", "--type=strategic",
        f"--patch={json.dumps({'spec': {'template': ADDED}})}",
    )  # fmt: skip
    budget = {"spec": {"selector": {"matchLabels": {"who": "me"}}}}
    merge(fleet.kubectl, "poddisruptionbudget", fleet.namespace, fleet.name, budget)
    merge(fleet.kubectl, "service", fleet.namespace, fleet.name, {"spec": {"publishNotReadyAddresses": True}})
    until(lambda: deployment(fleet)["spec"] == before, "the Deployment is as it was")
    until(lambda: "Service ride" in warnings(fleet, "ForeignFieldsRemoved"), "the Service's are named")
    named = warnings(fleet, "ForeignFieldsRemoved")
    # Maps and lists that have one manager, as nodeSelector and tolerations, went back as a whole.
    for path in ("metadata.annotations", "spec.hostPID", "spec.dnsPolicy"):
        assert f"spec.template.{path}" in named
    for path in ("initContainers", "containers[engine].env", "containers[engine].stdin", "containers[beside]"):
        assert f"spec.template.spec.{path}" in named
    assert "spec.publishNotReadyAddresses (set by kubectl-patch)" in named
    assert "publishNotReadyAddresses" not in fleet.kubectl.get("service", fleet.name, fleet.namespace)["spec"]
    selector = fleet.kubectl.get("poddisruptionbudget", fleet.name, fleet.namespace)["spec"]["selector"]
    assert "who" not in selector["matchLabels"]


def test_a_rollout_restart_has_its_new_pods(fleet: Scenario) -> None:
    before = {pod["metadata"]["uid"] for pod in fleet.pods()}
    fleet.kubectl("rollout", "restart", f"deployment/{fleet.name}", f"--namespace={fleet.namespace}")

    def restarted() -> bool:
        now = {pod["metadata"]["uid"] for pod in fleet.pods()}
        return len(now) == 2 and not now & before

    until(restarted, "two new pods", 120)
    assert "kubectl.kubernetes.io/restartedAt" in deployment(fleet)["spec"]["template"]["metadata"]["annotations"]
    assert warnings(fleet, "ForeignFieldsRemoved") == ""


def test_a_field_that_comes_back_each_time_is_left_and_named(fleet: Scenario) -> None:
    def contested() -> str:
        if not is_paused(fleet):
            pause(fleet)
        found = condition(fleet.kubectl.get("llmd", fleet.name, fleet.namespace), "Contested")
        return str(found.get("message", ""))

    message = until(contested, "the condition names it", every=2)
    assert f"Deployment {fleet.name}: spec.paused (set by kubectl-rollout)" in message
    assert is_paused(fleet)


def test_a_paused_fleet_has_its_foreign_fields_named_and_not_removed(fleet: Scenario) -> None:
    merge(fleet.kubectl, "llmd", fleet.namespace, fleet.name, {"spec": {"paused": True}})

    def read(kind: str) -> Document:
        return condition(fleet.kubectl.get("llmd", fleet.name, fleet.namespace), kind)

    until(lambda: read("ScalingActive").get("reason") == "Paused", "the fleet is paused")
    pause(fleet)
    until(lambda: "spec.paused" in read("Contested").get("message", ""), "it is named")
    assert is_paused(fleet)
    merge(fleet.kubectl, "llmd", fleet.namespace, fleet.name, {"spec": {"paused": False}})
    until(lambda: not is_paused(fleet) and not read("Contested"), "it is removed")
