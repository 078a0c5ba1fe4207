"""Pods that do not start and Deployments that make none, as Kubernetes describes them."""

from typing import Any


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "ride-1"}, "status": {"phase": "Pending", **status}}


def waiting(reason: str, message: str = "", last: dict[str, Any] | None = None) -> dict[str, Any]:
    state = {"state": {"waiting": {"reason": reason, "message": message}}, "lastState": last or {}}
    return pod(containerStatuses=[state])


def running(restarts: int, last: dict[str, Any]) -> dict[str, Any]:
    return pod(containerStatuses=[{"state": {"running": {}}, "lastState": last, "restartCount": restarts}])


def unscheduled(message: str, **requests: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    document = pod(conditions=[condition])
    document["spec"] = {"containers": [{"name": "engine", "resources": {"requests": requests}}]}
    return document


def ended(status: int, log: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": status, "message": log, "reason": reason}}


def crashing(last: dict[str, Any], **limits: str) -> dict[str, Any]:
    """Between two runs, as the kubelet puts it."""
    text = "back-off 20s restarting failed container=engine pod=ride-1_default(0)"
    document = waiting("CrashLoopBackOff", text, last)
    document["status"]["containerStatuses"][0]["name"] = "engine"
    document["spec"] = {"containers": [{"name": "engine", "resources": {"limits": limits}}]}
    return document


def initializing(init: dict[str, Any], **engine: Any) -> dict[str, Any]:
    """A pod with an init container; the engine's container waits for it, or is as ``engine`` says."""
    waits = {"state": {"waiting": {"reason": "PodInitializing"}}, "ready": False}
    return pod(
        initContainerStatuses=[{"name": "fetch", **init}], containerStatuses=[{"name": "engine", **waits, **engine}]
    )


def deployment(*conditions: dict[str, str], replicas: int = 0) -> dict[str, Any]:
    return {
        "metadata": {},
        "spec": {"replicas": 2},
        "status": {"replicas": replicas, "updatedReplicas": replicas, "conditions": list(conditions)},
    }


def claiming(created: str, *made: str) -> dict[str, Any]:
    """A pod with a resource claim, and the claims that were made for it."""
    document = pod(resourceClaimStatuses=[{"name": name, "resourceClaimName": f"ride-1-{name}"} for name in made])
    document["metadata"]["creationTimestamp"] = created
    document["spec"] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
    return document


NOW = "2026-11-21T12:00:30Z"
REFUSED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
