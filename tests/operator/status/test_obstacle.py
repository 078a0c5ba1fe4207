"""What stands in a fleet's way is found in what the cluster says, and named."""

from typing import Any

import pytest

from paternoster_contract.labels import MODEL_EXIT_STATUS
from paternoster_operator.observe import Observed
from paternoster_operator.obstacle import find_obstacle


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "ride-1"}, "status": {"phase": "Pending", **status}}


def waiting(reason: str, message: str = "", last: dict[str, Any] | None = None) -> dict[str, Any]:
    state = {"state": {"waiting": {"reason": reason, "message": message}}, "lastState": last or {}}
    return pod(containerStatuses=[state])


def running(restarts: int, last: dict[str, Any]) -> dict[str, Any]:
    return pod(containerStatuses=[{"state": {"running": {}}, "lastState": last, "restartCount": restarts}])


def unscheduled(message: str) -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}])


def ended(status: int, log: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": status, "message": log}}


def deployment(*conditions: dict[str, str], replicas: int = 0) -> dict[str, Any]:
    return {
        "metadata": {},
        "spec": {"replicas": 2},
        "status": {"replicas": replicas, "updatedReplicas": replicas, "conditions": list(conditions)},
    }


NOW = "2026-11-21T12:00:30Z"


def claiming(created: str, *made: str) -> dict[str, Any]:
    """A pod with a resource claim, and the claims that were made for it."""
    document = pod(resourceClaimStatuses=[{"name": name, "resourceClaimName": f"ride-1-{name}"} for name in made])
    document["metadata"]["creationTimestamp"] = created
    document["spec"] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
    return document


REFUSED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}


@pytest.mark.parametrize(
    ("found", "reason", "said"),
    [
        (waiting("ImagePullBackOff", "no such image"), "ImagePullFailed", "ImagePullBackOff: no such image"),
        (waiting("CreateContainerConfigError", 'secret "k" not found'), "ConfigurationMissing", 'secret "k" not found'),
        (waiting("CrashLoopBackOff", "back-off", ended(1, "a\nboom\n")), "EngineCrashLoop", "boom"),
        (waiting("CrashLoopBackOff", "", ended(MODEL_EXIT_STATUS, "no file")), "ModelSourceFailed", "no file"),
        (pod(containerStatuses=[{"state": ended(MODEL_EXIT_STATUS, "gone")}]), "ModelSourceFailed", "gone"),
        (unscheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), "InsufficientGPUs", "0/1 nodes"),
        (unscheduled("0/1 nodes are available: 1 Insufficient memory."), "Unschedulable", "memory"),
        (unscheduled("0/1 nodes are available: 1 cannot allocate all claims."), "InsufficientGPUs", "all claims"),
        (claiming("2026-11-21T12:00:00Z"), "InsufficientGPUs", "template one-gpu"),
        (claiming("2026-11-21T12:00:25Z"), None, ""),
        (claiming("2026-11-21T12:00:00Z", "gpu"), None, ""),
        (waiting("ContainerCreating"), None, ""),
        (running(restarts=3, last=ended(1, "boom")), "EngineCrashLoop", "boom"),
        (running(restarts=1, last=ended(137, "")), None, ""),
    ],
)
def test_pods(found: dict[str, Any], reason: str | None, said: str) -> None:
    obstacle = find_obstacle(Observed.from_cluster(None, [found]), NOW)
    assert (obstacle.reason if obstacle else None) == reason
    assert obstacle is None or (said in obstacle.message and "ride-1" in obstacle.message)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (deployment(REFUSED | {"message": 'pods "x" is forbidden: exceeded quota: q'}), "QuotaExceeded"),
        (deployment(REFUSED | {"message": "admission webhook denied"}), "PodCreationFailed"),
        (deployment(REFUSED | {"message": "old news"}, replicas=2), None),
        (deployment({"type": "Progressing", "status": "False"}), "ProgressDeadlineExceeded"),
        (deployment({"type": "Progressing", "status": "True"}), None),
    ],
)
def test_deployments(document: dict[str, Any], reason: str | None) -> None:
    obstacle = find_obstacle(Observed.from_cluster(document, []), NOW)
    assert (obstacle.reason if obstacle else None) == reason
