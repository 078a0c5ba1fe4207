"""Ways to run a fleet: scaled by somebody else, paused, placed, disrupted, edited by hand, deleted."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from paternoster_e2e.kubectl import CommandError, Document, Kubectl, condition, until
from paternoster_e2e.release import nothing_left

pytestmark = pytest.mark.timeout(600)

EXTERNAL: Document = {"replicas": 1, "autoscaling": {"mode": "External", "maxReplicas": 2}}
NOWHERE: Document = {"resources": {"gpu": {"count": 1}}}
"""No node has what its pods ask for: they cost nothing."""
MANAGED = "app.kubernetes.io/managed-by"


def autoscaler(fleet: Any) -> Document:
    """It has no metrics to read here, and lifts to its minimum without any."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    target = {"apiVersion": "paternoster.dev/v1alpha1", "kind": "LLMDeployment", "name": fleet.name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": fleet.name, "namespace": fleet.namespace},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 2,
            "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def test_a_horizontal_pod_autoscaler(fleet: Any) -> None:
    """In mode External, /scale is the autoscaler's: the operator follows, and writes nothing there itself."""
    fleet.apply(**EXTERNAL)
    fleet.kubectl.apply(autoscaler(fleet))
    fleet.until_ready(2, seconds=240)
    assert len(fleet.pods()) == 2
    until(lambda: fleet.child("hpa")["status"].get("currentReplicas") == 2, "the autoscaler counts the replicas")
    found = condition(fleet.child("hpa"), "AbleToScale")
    assert found["status"] == "True", found
    # It finds the pods by the selector in the status; what it then lacks is a metrics server.
    assert condition(fleet.child("hpa"), "ScalingActive").get("reason") != "InvalidSelector"
    assert f"LLMDeployment/{fleet.name}" in fleet("get", "hpa", fleet.name)
    unmoved(fleet, seconds=15)
    fleet("delete", "hpa", fleet.name)
    fleet("scale", "llmd", fleet.name, "--replicas=1")
    fleet.until_ready(1)
    assert len(fleet.pods()) == 1
    assert fleet.chat().status_code == 200


def unmoved(fleet: Any, seconds: float) -> None:
    """The replicas of the spec and the Deployment stay as they are meanwhile."""
    before = generations(fleet)
    time.sleep(seconds)
    assert generations(fleet) == before


def generations(fleet: Any) -> tuple[int, int]:
    return fleet.get()["metadata"]["generation"], fleet.child("deployment")["metadata"]["generation"]


def test_a_paused_fleet(fleet: Any) -> None:
    """What changes while it is paused waits until it is not; what serves goes on."""
    fleet.apply()
    fleet.until_ready()
    before = fleet.child("deployment")["metadata"]["generation"]
    # At once: a pause after the change would come too late.
    fleet.apply(paused=True, replicas=2, engine={"maxQueuedRequests": 8})
    until(fleet.seen, "the operator has seen the change")
    scaling_active = condition(fleet.get(), "ScalingActive")
    assert (scaling_active["status"], scaling_active["reason"]) == ("False", "Paused")
    time.sleep(12)  # more than two looks
    assert fleet.child("deployment")["metadata"]["generation"] == before
    assert fleet.chat().status_code == 200
    fleet.apply(engine={"maxQueuedRequests": 8})
    until(lambda: "--max-queued-requests 8" in command(fleet), "the change reaches the Deployment")
    fleet.until_ready()
    assert condition(fleet.get(), "ScalingActive")["reason"] != "Paused"


def command(fleet: Any) -> str:
    [container] = fleet.child("deployment")["spec"]["template"]["spec"]["containers"]
    return " ".join(container["args"]).replace("=", " ")


@pytest.fixture
def priority(kubectl: Kubectl) -> Iterator[str]:
    """A PriorityClass; it belongs to no namespace."""
    name = "fleet-test"
    metadata = {"name": name}
    kubectl.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 1000})
    yield name
    kubectl("delete", "priorityclass", name)


def test_where_engines_run(fleet: Any, priority: str) -> None:
    """What a manifest says about place and rank is on the pod, as the API server admitted it."""
    fleet("create", "serviceaccount", "riders")
    toleration = {"key": "example.com/lifts", "operator": "Exists", "effect": "NoSchedule"}
    spread = {"maxSkew": 2, "topologyKey": "kubernetes.io/os", "whenUnsatisfiable": "DoNotSchedule"}
    fleet.apply(
        **NOWHERE,
        priorityClassName=priority,
        serviceAccountName="riders",
        nodeSelector={"kubernetes.io/os": "linux"},
        tolerations=[toleration],
        topologySpreadConstraints=[spread],
        imagePullSecrets=[{"name": "registry"}],
    )
    until(lambda: len(fleet.pods()) == 1, "a pod is made")
    [pod] = fleet.pods()
    spec = pod["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == (priority, 1000)
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("riders", False)
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert toleration in spec["tolerations"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    [found] = spec["topologySpreadConstraints"]
    selector = found.pop("labelSelector")["matchLabels"]
    assert found == spread
    assert selector.items() <= pod["metadata"]["labels"].items()


def test_a_disruption_budget(fleet: Any) -> None:
    """One engine at a time may be taken: none while the only one is away, else it, and another one follows."""
    fleet.apply(**NOWHERE)
    until(lambda: len(fleet.pods()) == 1, "a pod is made")
    fleet.apply()
    fleet.until_ready()
    until(lambda: fleet.child("pdb")["status"]["disruptionsAllowed"] == 1, "one may be taken")
    assert fleet("get", "pdb", fleet.name).splitlines()[1].split()[:4] == [fleet.name, "N/A", "1", "1"]
    [pod] = fleet.pods()
    evict(fleet, pod)
    until(lambda: fleet.pods() and names(fleet) != {pod["metadata"]["name"]}, "another pod follows")
    fleet.until_ready()
    assert fleet.chat().status_code == 200


def test_an_engine_that_never_serves_keeps_no_node(fleet: Any) -> None:
    """The only engine runs and does not serve: the budget allows none, and a drain may take this one all the same."""
    fleet.apply(model={"source": "package://no_such_model"})
    fleet.until_stalled("ModelSourceFailed")
    until(lambda: fleet.child("pdb")["status"].get("expectedPods") == 1, "the budget counts it")
    assert fleet.child("pdb")["status"]["disruptionsAllowed"] == 0
    [pod] = fleet.pods()
    evict(fleet, pod)
    until(lambda: fleet.pods() and pod["metadata"]["name"] not in names(fleet), "another pod follows")


def evict(fleet: Any, pod: Document) -> None:
    """Evict a pod like `kubectl drain`."""
    metadata = {"name": pod["metadata"]["name"], "namespace": fleet.namespace}
    path = f"/api/v1/namespaces/{fleet.namespace}/pods/{metadata['name']}/eviction"
    document = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    fleet.kubectl("create", f"--raw={path}", "--filename=-", document=document)


def names(fleet: Any) -> set[str]:
    return {pod["metadata"]["name"] for pod in fleet.pods()}


def test_deleting_it_leaves_nothing(fleet: Any) -> None:
    fleet.apply()
    fleet.until_ready()
    fleet("delete", "llmd", fleet.name)
    nothing_left(fleet.kubectl, fleet.namespace)
    assert fleet.kubectl.list("endpointslices", fleet.namespace) == []


class TestEditedByHand:
    """The manifest is the truth: what somebody changes on a child is changed back."""

    def test_replicas_and_template(self, fleet: Any) -> None:
        fleet.apply(**NOWHERE)
        before = wanted(fleet)
        fleet("scale", "deployment", fleet.name, "--replicas=3")
        fleet("set", "image", f"deployment/{fleet.name}", "engine=example.invalid/other:1")
        corrected(fleet, before)

    def test_labels_and_budget(self, fleet: Any) -> None:
        fleet.apply(**NOWHERE)
        before = wanted(fleet)
        fleet("label", "deployment", fleet.name, "app.kubernetes.io/name-")
        fleet("label", "service", fleet.name, f"{MANAGED}-")
        fleet("patch", "pdb", fleet.name, "--type=merge", "--patch=" + json.dumps({"spec": {"maxUnavailable": 0}}))
        corrected(fleet, before)

    def test_service_and_budget_deleted(self, fleet: Any) -> None:
        fleet.apply(**NOWHERE)
        before = wanted(fleet)
        fleet("delete", "service,pdb", fleet.name)
        corrected(fleet, before)

    def test_the_deployment_hidden_or_deleted(self, fleet: Any) -> None:
        """Without its label the operator's watch no longer has it."""
        fleet.apply(**NOWHERE)
        before = wanted(fleet)
        fleet("label", "deployment", fleet.name, f"{MANAGED}-")
        corrected(fleet, before)
        fleet("delete", "deployment", fleet.name)
        corrected(fleet, before)


KINDS = ("deployment", "service", "pdb")


def wanted(fleet: Any) -> dict[str, Document]:
    """The children, once they are there and the operator is done with them."""
    until(lambda: all(fleet.child(kind) for kind in KINDS), "the children are there")
    fleet.until_stalled("InsufficientGPUs")
    return {kind: intent(fleet, kind) for kind in KINDS}


def intent(fleet: Any, kind: str) -> Document:
    """What the operator sets, of what is there; empty where nothing is."""
    try:
        child = fleet.child(kind)
    except CommandError:
        return {}
    return {"labels": child["metadata"].get("labels"), "spec": {**child["spec"], "clusterIPs": None}}


def corrected(fleet: Any, before: dict[str, Document]) -> None:
    def astray() -> list[str]:
        return [kind for kind in KINDS if intent(fleet, kind) != before[kind]]

    with contextlib.suppress(AssertionError):
        until(lambda: not astray(), "everything is as the manifest says", 90)
    assert astray() == []
