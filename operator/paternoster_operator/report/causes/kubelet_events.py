"""Why a pod does not start that has a node, in events about it: its status says ``ContainerCreating`` throughout. Pure.

The kubelet mounts volumes, makes the pod's sandbox, pulls images and starts containers, in this order, and records an
event at each failure and each step. So a failure counts until a later step is recorded, and from its second occurrence
on: kubelets recover from most that occur once.
"""

from collections.abc import Sequence

from paternoster_operator.pods.events import PodEvent
from paternoster_operator.pods.view import PREPARING, PodView
from paternoster_operator.report.causes.cause import StallReason, explain, is_known

EVENTS_AFTER_SECONDS = 3.0
"""Age from which a pod that is not started is asked about."""
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
"""Reason of an event -> the reason the fleet gives where the text has none of its own."""
_STEPS = frozenset({"Scheduled", "Pulling", "Pulled", "Created", "Started"})
_TOLD_ONCE = frozenset({"FailedAttachVolume", HOOK})
"""The attach controller records a volume that another node has once, however long it tries; and a container whose hook
failed is ended first, which may take the pod's whole grace period."""
_TRANSIENT = ("not registered", "failed to sync")
"""Of a kubelet whose cache does not have the object yet."""


def wants_events(pod: PodView, now: str) -> bool:
    """Whether its status alone does not say why it does not start. ``now`` is an RFC 3339 time."""
    if not pod.scheduled or pod.has_ended or pod.deleting or pod.age(now) < EVENTS_AFTER_SECONDS:
        return False
    return (
        is_preparing(pod)
        or pod.waiting_reason in ("CrashLoopBackOff", "PostStartHookError")
        or (pod.ended is not None and pod.ended.status != 0)
    )


def is_preparing(pod: PodView) -> bool:
    """Its containers wait for what the kubelet does before it starts them."""
    if pod.waiting_reason is None:
        return pod.phase == "Pending" and pod.running_since is None and pod.ended is None
    return pod.waiting_reason in PREPARING


def find_event_cause(pod: PodView) -> StallReason | None:
    """What the kubelet cannot do for a pod whose containers wait for it; None while it gets on."""
    if not is_preparing(pod):
        return None
    last_step = max((i for i, event in enumerate(pod.events) if event.reason in _STEPS), default=-1)
    attached = max((i for i, event in enumerate(pod.events) if event.reason == "SuccessfulAttachVolume"), default=-1)
    failures = [
        event
        for i, event in enumerate(pod.events)
        if i > last_step
        and event.reason in _FAILURES
        and not any(words in event.note for words in _TRANSIENT)
        and (i > attached or event.reason != "FailedAttachVolume")
    ]
    if not _persists(failures):
        return None
    told = next((event for event in reversed(failures) if is_known(event.note)), failures[-1])
    of = "" if told.container in ("", pod.container) else f"container {told.container}: "
    return explain(_FAILURES[told.reason], f"{of}{told.reason}: {told.note}")


def _persists(failures: Sequence[PodEvent]) -> bool:
    # Texts that name a container anew each time are events of their own.
    return sum(event.count for event in failures) > 1 or any(event.reason in _TOLD_ONCE for event in failures)


def find_ending(pod: PodView) -> str:
    """Why the kubelet ends the pod's container again and again, where it is the kubelet that does; else empty."""
    for event in reversed(pod.events):
        if event.container in ("", pod.container) and (
            event.reason == HOOK or (event.reason == _KILLING and " probe, will be restarted" in event.note)
        ):
            return event.note
    return ""


def is_pulling(pod: PodView) -> PodEvent | None:
    """The pull of an image that has not ended yet."""
    steps = [event for event in pod.events if event.reason in _STEPS]
    return steps[-1] if steps and steps[-1].reason == "Pulling" else None
