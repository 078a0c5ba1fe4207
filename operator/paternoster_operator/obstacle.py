"""What keeps a fleet from getting its replicas: found in pods and Deployment, named for people. Pure."""

from dataclasses import dataclass
from datetime import datetime

from paternoster_contract.labels import MODEL_EXIT_STATUS
from paternoster_operator.observe import Observed, PodView

_WAITING = {
    "ImagePullBackOff": "ImagePullFailed",
    "ErrImagePull": "ImagePullFailed",
    "ErrImageNeverPull": "ImagePullFailed",
    "InvalidImageName": "ImagePullFailed",
    "CreateContainerConfigError": "ConfigurationMissing",
    "CrashLoopBackOff": "EngineCrashLoop",
    "Unschedulable": "Unschedulable",
}
"""Why a pod waits (kubelet, scheduler) -> the reason the fleet gives."""
CLAIM_SECONDS = 10.0
"""Time that a resource claim may take to be made from its template."""
LOOP_RESTARTS = 2
"""Restarts from which an engine that is not ready is taken to end again."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """It does not go away by waiting; it does once its cause is mended."""

    reason: str
    message: str


def find_obstacle(observed: Observed, now: str) -> Obstacle | None:
    """The one that explains most, or None. ``now`` is an RFC 3339 time."""
    for pod in observed.pending:
        if pod.missing_claim and _age(pod, now) > CLAIM_SECONDS:
            said = f"no resource claim could be made from the template {pod.missing_claim}: is it there?"
            return Obstacle("InsufficientGPUs", f"{pod.name}: {said}")
        reason = _reason(pod)
        if reason is not None:
            said = f": {pod.message}" if pod.message else ""
            return Obstacle(reason, f"{pod.name}: {pod.waiting_reason or 'ended'}{said}")
    deployment = observed.deployment
    if deployment is None:
        return None
    if deployment.create_failure and (deployment.rolling or deployment.replicas < deployment.spec_replicas):
        exceeded = "exceeded quota" in deployment.create_failure
        return Obstacle("QuotaExceeded" if exceeded else "PodCreationFailed", deployment.create_failure)
    if deployment.progress_failed:
        return Obstacle("ProgressDeadlineExceeded", deployment.message)
    return None


def _age(pod: PodView, now: str) -> float:
    if pod.created is None:
        return 0.0
    return (datetime.fromisoformat(now) - datetime.fromisoformat(pod.created)).total_seconds()


def _reason(pod: PodView) -> str | None:
    if pod.exit_status == MODEL_EXIT_STATUS:
        return "ModelSourceFailed"
    reason = _WAITING.get(pod.waiting_reason or "")
    if reason is None and pod.exit_status and pod.restarts >= LOOP_RESTARTS:
        return "EngineCrashLoop"  # it runs for a moment between two ends
    # The scheduler says: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu. Or: 3 cannot allocate all claims.
    if reason == "Unschedulable" and any(word in pod.message.lower() for word in ("gpu", "claim")):
        return "InsufficientGPUs"
    return reason
