"""What keeps a fleet from getting its replicas: found in pods and Deployment, named for people. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime
from signal import Signals

from paternoster_contract.labels import ENGINE_CONTAINER, MODEL_EXIT_STATUS
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.desired.resources import host_kv_cache
from paternoster_operator.observe import Ended, Observed, PodView
from paternoster_operator.report.model_fetch import fetches, find_failure, gets_on, progress_words
from paternoster_operator.report.no_node import read_no_node

_WAITING = {
    "ImagePullBackOff": "ImagePullFailed",
    "ErrImagePull": "ImagePullFailed",
    "ErrImageNeverPull": "ImagePullFailed",
    "InvalidImageName": "ImagePullFailed",
    "ImageInspectError": "ImagePullFailed",
    "SignatureValidationFailed": "ImagePullFailed",
    "CreateContainerConfigError": "ConfigurationMissing",
    "CreateContainerError": "ContainerCannotRun",
    "RunContainerError": "ContainerCannotRun",
}
"""Why a pod's container waits (kubelet) -> the reason the fleet gives."""
_ENDED = {"OOMKilled": "OOMKilled", "ContainerCannotRun": "ContainerCannotRun", "StartError": "ContainerCannotRun"}
"""How a container ends again and again (kubelet) -> the reason the fleet gives, where it is not EngineCrashLoop."""
_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
"""What the scheduler says of a pod whose claim is not there."""
CLAIM_SECONDS = 10.0
"""Time that a resource claim may take to be made from its template."""
LOOP_RESTARTS = 2
"""Restarts from which an engine that is not ready is taken to end again."""


@dataclass(frozen=True, slots=True)
class StallReason:
    """It does not go away by waiting; it does once its cause is mended."""

    reason: str
    message: str


def find_stall_reason(observed: Observed, spec: LLMDeploymentSpec, now: str) -> StallReason | None:
    """The one that explains most, or None. ``now`` is an RFC 3339 time."""
    for pod in observed.starting:
        found = _unscheduled(pod, spec, now) or _unstarted(pod, spec) or _ends(pod, spec, now)
        if found is not None:
            of = "" if pod.container == ENGINE_CONTAINER else f"container {pod.container}: "
            return StallReason(found.reason, f"{pod.name}: {of}{found.message}")
    deployment = observed.deployment
    if deployment is None:
        return None
    if deployment.create_failure and (deployment.rolling or deployment.replicas < deployment.spec_replicas):
        exceeded = "exceeded quota" in deployment.create_failure
        return StallReason("QuotaExceeded" if exceeded else "PodCreationFailed", deployment.create_failure)
    if deployment.progress_failed:
        return StallReason("ProgressDeadlineExceeded", deployment.message)
    return None


def _unscheduled(pod: PodView, spec: LLMDeploymentSpec, now: str) -> StallReason | None:
    if pod.missing_claim and _age(pod, now) > CLAIM_SECONDS:
        said = f"no resource claim could be made from the template {pod.missing_claim}: is it there?"
        return StallReason("InsufficientGPUs", said)
    if pod.waiting_reason != "Unschedulable":
        return None
    if (claim := _NO_CLAIM.search(pod.message)) is not None:
        return StallReason("VolumeClaimNotFound", f"there is no PersistentVolumeClaim {claim[1]} in its namespace")
    no_node = read_no_node(pod.message)
    if no_node is None:
        return StallReason("Unschedulable", pod.message)
    reason = "InsufficientGPUs" if no_node.lacks_devices(spec.resources.gpu.resource_name) else "Unschedulable"
    return StallReason(reason, f"no node takes it: {no_node.say(pod.requests)}")


def _age(pod: PodView, now: str) -> float:
    if pod.created is None:
        return 0.0
    return (datetime.fromisoformat(now) - datetime.fromisoformat(pod.created)).total_seconds()


def _unstarted(pod: PodView, spec: LLMDeploymentSpec) -> StallReason | None:
    reason = _WAITING.get(pod.waiting_reason or "")
    if reason is None:
        return None
    said = f"{pod.waiting_reason}: {pod.message}" if pod.message else str(pod.waiting_reason)
    return StallReason(reason, f"model.source: {said}" if _is_of_model(pod, spec) else said)


def _is_of_model(pod: PodView, spec: LLMDeploymentSpec) -> bool:
    """Whether it is the image with the model that is missing: the kubelet says it of the engine's container."""
    return spec.model.image is not None and f'"{spec.model.image.reference}"' in pod.message


def _ends(pod: PodView, spec: LLMDeploymentSpec, now: str) -> StallReason | None:
    """Its container ends again and again, or has said itself that it will."""
    if fetches(pod, spec):
        if gets_on(pod, now):
            return None
        if (said := find_failure(pod)) is not None:
            return StallReason(*said)
    ended, engine = pod.ended, pod.container == ENGINE_CONTAINER
    if engine and ended is not None and ended.status == MODEL_EXIT_STATUS:
        return StallReason("ModelSourceFailed", _last_words(ended))
    # It runs for a moment between two ends.
    looping = ended is not None and ended.status != 0 and pod.restarts >= LOOP_RESTARTS
    if pod.waiting_reason != "CrashLoopBackOff" and not looping:
        return None
    if ended is None:
        return StallReason("EngineCrashLoop", pod.message)
    reason = _ENDED.get(ended.reason, "EngineCrashLoop")
    return StallReason(reason, _out_of_memory(pod, spec) if reason == "OOMKilled" else _last_words(ended))


def _last_words(ended: Ended) -> str:
    said = progress_words(ended)
    killed = ended.status - 128
    by = f" ({Signals(killed).name})" if killed in set(Signals) else ""
    return f"ended with exit code {ended.status}{by}" + (f": {said}" if said else "")


def _out_of_memory(pod: PodView, spec: LLMDeploymentSpec) -> str:
    limit = pod.limits.get("memory")
    if limit is None:
        return "killed because its node ran out of memory; it has no limit of its own"
    pool = host_kv_cache(spec) if pod.container == ENGINE_CONTAINER else None
    of_it = "" if pool is None else f"; its KV cache takes up to {pool} (engine.kvCacheMemory), the model the rest"
    return f"killed because it needs more memory than its limit of {limit}{of_it}"
