"""Find in events why a scheduled pod does not start: its status says only ``ContainerCreating``. Pure.

The kubelet mounts volumes, creates the pod's sandbox, pulls images and starts containers, in this order, and records an
event at each failure and each step. So a failure counts from its second occurrence, since kubelets recover from most
that occur once, until a later step is recorded.
"""

from collections.abc import Sequence

from paternoster_operator.pods.events import PodEvent
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.causes.cause import StallReason, explain_stall, is_known

HOOK, _KILLING = "FailedPostStartHook", "Killing"
_FAILURES = {
    "FailedMount": "VolumeMountFailed",
    "FailedMapVolume": "VolumeMountFailed",
    "FailedMountOnFilesystemMismatch": "VolumeMountFailed",
    "FailedAttachVolume": "VolumeMountFailed",
    "FailedCreatePodSandBox": "PodSandboxFailed",
    "NetworkNotReady": "PodSandboxFailed",
    "FailedCreatePodContainer": "PodSandboxFailed",
    "FailedPrepareDynamicResources": "DevicesNotPrepared",
    HOOK: "LifecycleHookFailed",
}
"""Reason of an event -> reason of the condition, unless the message determines one."""
_STEPS = frozenset({"Scheduled", "Pulling", "Pulled", "Created", "Started"})
_RECORDED_ONCE = frozenset({"FailedAttachVolume", HOOK})
"""Failures that count at their first occurrence: the attach controller records only one event for a volume of another
node, and a container whose hook failed ends first, which may take the pod's whole grace period."""
_TRANSIENT = ("not registered", "failed to sync")
"""In messages of a kubelet whose cache does not have the object yet."""


def find_event_cause(pod: PodView) -> StallReason | None:
    """Return why the kubelet cannot prepare the pod; None while it makes progress."""
    if not pod.is_preparing:
        return None
    last_step = max((i for i, event in enumerate(pod.events) if event.reason in _STEPS), default=-1)
    attached = max((i for i, event in enumerate(pod.events) if event.reason == "SuccessfulAttachVolume"), default=-1)
    failures = [
        event
        for i, event in enumerate(pod.events)
        if i > last_step
        and event.reason in _FAILURES
        and not any(text in event.note for text in _TRANSIENT)
        and (i > attached or event.reason != "FailedAttachVolume")
    ]
    if not _has_persisted(failures):
        return None
    failure = next((event for event in reversed(failures) if is_known(event.note)), failures[-1])
    of = "" if failure.container in ("", pod.container) else f"container {failure.container}: "
    return explain_stall(_FAILURES[failure.reason], f"{of}{failure.reason}: {failure.note}")


def _has_persisted(failures: Sequence[PodEvent]) -> bool:
    # Messages that contain a new container name each time are separate events.
    return sum(event.count for event in failures) > 1 or any(event.reason in _RECORDED_ONCE for event in failures)


def find_ending(pod: PodView) -> str:
    """Return why the kubelet restarts the pod's container, such as a failed probe; empty where it does not."""
    for event in reversed(pod.events):
        if event.container in ("", pod.container) and (
            event.reason == HOOK or (event.reason == _KILLING and " probe, will be restarted" in event.note)
        ):
            return event.note
    return ""


def find_pull(pod: PodView) -> PodEvent | None:
    """Return the event of an image pull that has not ended yet."""
    steps = [event for event in pod.events if event.reason in _STEPS]
    return steps[-1] if steps and steps[-1].reason == "Pulling" else None
