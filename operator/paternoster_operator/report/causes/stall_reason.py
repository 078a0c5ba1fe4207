"""Find why a fleet does not get its replicas, in pods, events about them and the Deployment. Pure."""

from paternoster_contract.labels import ENGINE_CONTAINER, MODEL_EXIT_STATUS
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.desired.resources import host_kv_cache
from paternoster_operator.observed import Observed
from paternoster_operator.pods.log_lines import is_out_of_memory
from paternoster_operator.pods.room import find_holder, find_lack
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.causes.cause import StallReason, explain_stall
from paternoster_operator.report.causes.ended import describe_end
from paternoster_operator.report.causes.kubelet_events import find_ending, find_event_cause
from paternoster_operator.report.causes.stage import find_stage
from paternoster_operator.report.causes.unscheduled import find_unscheduled
from paternoster_operator.report.model_fetch import find_failure, gets_on, is_fetching

_WAITING = {
    "ImagePullBackOff": "ImagePullFailed",
    "ErrImagePull": "ImagePullFailed",
    "ErrImageNeverPull": "ImagePullFailed",
    "InvalidImageName": "ImagePullFailed",
    "ImageInspectError": "ImagePullFailed",
    "SignatureValidationFailed": "ImagePullFailed",
    "RegistryUnavailable": "ImagePullFailed",
    "CreateContainerConfigError": "ConfigurationMissing",
    "CreateContainerError": "ContainerCannotRun",
    "PreCreateHookError": "ContainerCannotRun",
    "PreStartHookError": "ContainerCannotRun",
    "RunContainerError": "ContainerCannotRun",
    "PostStartHookError": "LifecycleHookFailed",
    "CreatePodSandboxError": "PodSandboxFailed",
    "ConfigPodSandboxError": "PodSandboxFailed",
}
"""Why a pod's container waits (kubelet) -> the reason the fleet gives."""
_ENDED = {"OOMKilled": "OOMKilled", "ContainerCannotRun": "ContainerCannotRun", "StartError": "ContainerCannotRun"}
"""How a container ends again and again (kubelet) -> the reason the fleet gives, where it is not EngineCrashLoop."""
LOOP_RESTARTS = 2
"""Restarts from which an engine that is not ready is taken to end again."""
REJECTED_SECONDS = 300.0
"""Time after which a pod that its node refused no longer counts."""


def find_stall_reason(observed: Observed, spec: LLMDeploymentSpec, now: str) -> StallReason | None:
    """The one that explains most, or None. ``now`` is an RFC 3339 time."""
    for pod in observed.starting:
        if waits_for_end(pod, observed) is not None:
            continue
        if (found := find_pod_stall(pod, spec, now)) is not None:
            return StallReason(found.reason, f"{pod.name}: {found.message}")
    if (refused := _find_rejected(observed, now)) is not None:
        return refused
    deployment = observed.deployment
    if deployment is None:
        return None
    if deployment.create_failure and (deployment.rolling or deployment.replicas < deployment.spec_replicas):
        return explain_stall("PodCreationFailed", deployment.create_failure)
    if deployment.progress_failed:
        return StallReason(
            "ProgressDeadlineExceeded", "; ".join(filter(None, (deployment.message, _describe_stage(observed))))
        )
    return None


def find_pod_stall(pod: PodView, spec: LLMDeploymentSpec, now: str) -> StallReason | None:
    """Find why one pod does not start, or None. ``now`` is an RFC 3339 time."""
    found = (
        find_unscheduled(pod, spec, now)
        or _find_unstarted(pod, spec)
        or _find_ending(pod, spec, now)
        or find_event_cause(pod)
        or _find_engine_fault(pod)
    )
    if found is None or pod.container == ENGINE_CONTAINER:
        return found
    return StallReason(found.reason, f"container {pod.container}: {found.message}")


def waits_for_end(pod: PodView, observed: Observed) -> PodView | None:
    """Return a pod that is being deleted and holds what ``pod`` lacks, so that waiting helps; else None."""
    lack = find_lack(pod)
    return None if lack is None else find_holder(lack, observed.draining)


def _describe_stage(observed: Observed) -> str:
    return "; ".join(f"{pod.name}: {find_stage(pod).message}" for pod in observed.starting[:1])


def _find_rejected(observed: Observed, now: str) -> StallReason | None:
    """Return a reason where a node refuses pods that the scheduler assigned, although each is replaced at once."""
    refused = [
        pod
        for pod in observed.pods
        if pod.ended_reason and pod.disruption is None and 0 <= pod.age_at(now) < REJECTED_SECONDS
    ]
    if len(refused) < 2 or observed.serving or observed.deployment is None:
        return None
    last = max(refused, key=lambda pod: pod.created or "")
    return StallReason(
        "PodRejected", f"{last.name}: node {last.node} refuses it: {last.ended_reason}: {last.ended_message}"
    )


def _find_unstarted(pod: PodView, spec: LLMDeploymentSpec) -> StallReason | None:
    reason = _WAITING.get(pod.waiting_reason or "")
    if reason is None:
        return None
    text = f"{pod.waiting_reason}: {pod.message}" if pod.message else str(pod.waiting_reason)
    return explain_stall(reason, f"model.source: {text}" if _is_of_model(pod, spec) else text)


def _is_of_model(pod: PodView, spec: LLMDeploymentSpec) -> bool:
    """Whether it is the image with the model that is missing: the kubelet says it of the engine's container."""
    return spec.model.image is not None and f'"{spec.model.image.reference}"' in pod.message


def _find_ending(pod: PodView, spec: LLMDeploymentSpec, now: str) -> StallReason | None:
    """Its container ends again and again, or has a message that it will."""
    if is_fetching(pod, spec):
        if gets_on(pod, now):
            return None
        if (text := find_failure(pod)) is not None:
            return StallReason(*text)
    ended, engine = pod.ended, pod.container == ENGINE_CONTAINER
    if engine and ended is not None and ended.status == MODEL_EXIT_STATUS:
        return StallReason("ModelSourceFailed", describe_end(pod))
    if pod.recovers or pod.served_in_this_run:
        return None
    # It runs for a moment between two ends. A server ends with 0 when another process of its engine has died.
    failed = ended is not None and (ended.status != 0 or engine)
    looping = failed and pod.restarts >= LOOP_RESTARTS
    if pod.waiting_reason != "CrashLoopBackOff" and not looping:
        return None
    if (by_kubelet := find_ending(pod)) and (ended is None or ended.reason != "OOMKilled"):
        said_last = "" if ended is None else f"; {describe_end(pod)}"
        reason = "LifecycleHookFailed" if "PostStart" in by_kubelet else "EngineCrashLoop"
        return StallReason(reason, f"{by_kubelet}{said_last}")
    if ended is None:
        return StallReason("EngineCrashLoop", pod.message)
    reason = _ENDED.get(ended.reason, "EngineCrashLoop")
    if reason == "OOMKilled":
        return StallReason(reason, _out_of_memory(pod, spec))
    words = describe_end(pod)
    if reason == "EngineCrashLoop" and engine and is_out_of_memory(ended.message):
        reason = "OutOfMemory"
    # Of a container that never ran, the words are the runtime's; else they are the last line of its own log.
    return explain_stall(reason, words) if reason == "ContainerCannotRun" else StallReason(reason, words)


def _find_engine_fault(pod: PodView) -> StallReason | None:
    fault = pod.engine_fault
    return None if fault is None or not fault.lasting else StallReason(fault.reason, fault.message)


def _out_of_memory(pod: PodView, spec: LLMDeploymentSpec) -> str:
    limit = pod.limits.get("memory")
    if limit is None:
        return "killed because its node ran out of memory; it has no limit of its own"
    pool = host_kv_cache(spec) if pod.container == ENGINE_CONTAINER else None
    of_it = "" if pool is None else f"; its KV cache takes up to {pool} (engine.kvCacheMemory), the model the rest"
    return f"killed because it needs more memory than its limit of {limit}{of_it}"
