"""Why a pod does not start that its status shows as ContainerCreating: read from the events about it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.observed import Observed
from paternoster_operator.pods.events import MAX_NOTE, PodEvent, read_events
from paternoster_operator.pods.view import PodView
from paternoster_operator.report.causes.kubelet_events import find_event_cause
from paternoster_operator.report.causes.stage import find_stage
from paternoster_operator.report.causes.stall_reason import find_stall_reason

Resource = Callable[..., LLMDeployment]
NOW = "2026-11-21T12:01:00Z"
MOUNT = 'MountVolume.SetUp failed for volume "extra" : '
TIMED_OUT = "Unable to attach or mount volumes: unmounted volumes=[extra]: timed out waiting for the condition"


def event(reason: str, note: str = "", at: int = 10, count: int = 1, container: str = "") -> PodEvent:
    return PodEvent(reason, note, container, count, f"2026-11-21T12:00:{at:02}Z")


def creating(*events: PodEvent, reason: str = "ContainerCreating") -> PodView:
    document = {
        "metadata": {"name": "ride-1", "creationTimestamp": "2026-11-21T12:00:00Z"},
        "spec": {"nodeName": "north"},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "engine", "ready": False, "state": {"waiting": {"reason": reason}}}],
        },
    }
    return Observed.from_cluster(None, [document]).with_fields({"ride-1": {"events": tuple(events)}}).pods[0]


@pytest.mark.parametrize(
    ("events", "reason", "words"),
    [
        (
            [event("FailedMount", MOUNT + 'configmap "absent" not found', count=4)],
            "ConfigurationMissing",
            "make configm",
        ),
        (
            [event("FailedMount", MOUNT + 'secret "absent" not found', count=2)],
            "ConfigurationMissing",
            "make secret abs",
        ),
        (
            [event("FailedMount", MOUNT + "configmap references non-existent config key: k", count=2)],
            "ConfigurationMissing",
            "add the key k",
        ),
        (
            [event("FailedMount", MOUNT + 'secret "s" not found', count=6), event("FailedMount", TIMED_OUT, at=50)],
            "ConfigurationMissing",
            'secret "s" not found',
        ),
        (
            [event("FailedMount", MOUNT + "hostPath type check failed: /models is not a directory", count=2)],
            "VolumeMountFailed",
            "; create /models on the node",
        ),
        ([event("FailedMount", "mount failed: exit status 32", count=3)], "VolumeMountFailed", "exit status 32"),
        (
            [
                event(
                    "FailedAttachVolume",
                    'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) ride-0',
                )
            ],
            "VolumeInUse",
            "used by pod(s) ride-0; free the volume",
        ),
        (
            [event("FailedCreatePodSandBox", 'no runtime for "nowhere" is configured', count=3)],
            "PodSandboxFailed",
            "configure the handler nowhere",
        ),
        (
            # Texts that differ by a container's name are events of their own.
            [event("FailedCreatePodSandBox", f"cni: sandbox {n}: no address left", at=10 + n) for n in range(2)],
            "PodSandboxFailed",
            "sandbox 1: no address left",
        ),
        (
            [event("Started", at=9), event("FailedPostStartHook", "PostStartHook failed", container="log")],
            "LifecycleHookFailed",
            "container log: FailedPostStartHook: PostStartHook failed",
        ),
        (
            [event("FailedPrepareDynamicResources", "driver gpu: down", count=2)],
            "DevicesNotPrepared",
            "driver gpu: down",
        ),
    ],
)
def test_what_the_kubelet_cannot_do(events: list[PodEvent], reason: str, words: str) -> None:
    found = find_event_cause(creating(*events))
    assert found is not None
    assert found.reason == reason
    assert words in found.message


@pytest.mark.parametrize(
    "events",
    [
        [],
        [event("Scheduled")],
        # It is tried again at once, and most that fail once do not fail twice.
        [event("FailedMount", MOUNT + 'configmap "absent" not found')],
        # The kubelet's cache has not seen the object yet.
        [event("FailedMount", MOUNT + 'object "ns"/"kube-root-ca.crt" not registered', count=5)],
        # Over: the image is pulled only when every volume is there.
        [event("FailedMount", MOUNT + 'secret "s" not found', count=5), event("Pulling", "Pulling image", at=20)],
        [
            event("FailedAttachVolume", "Multi-Attach error: used by pod(s) a"),
            event("SuccessfulAttachVolume", at=20),
        ],
        [event("FailedScheduling", "0/1 nodes are available", count=9), event("Scheduled", at=11)],
    ],
)
def test_what_it_gets_over(events: list[PodEvent]) -> None:
    assert find_event_cause(creating(*events)) is None


def test_it_counts_for_a_pod_that_waits_alone(resource: Resource) -> None:
    failures = [event("FailedMount", MOUNT + 'secret "s" not found', count=5)]
    observed = Observed(None, (creating(*failures),))
    found = find_stall_reason(observed, resource().spec, NOW)
    assert found is not None
    assert found.message.startswith("ride-1: FailedMount: MountVolume")
    running = Observed(None, (creating(*failures, reason="ErrImagePull"),))
    found = find_stall_reason(running, resource().spec, NOW)
    assert found is not None
    assert found.reason == "ImagePullFailed"


reasons = st.sampled_from(["FailedMount", "FailedCreatePodSandBox", "Pulling", "Started", "Killing", "Unheard"])
some_events = st.lists(
    st.builds(event, reasons, st.text(max_size=30), st.integers(0, 59), st.integers(1, 9)), max_size=8
)


@given(some_events)
def test_a_step_after_all_failures_ends_them(events: list[PodEvent]) -> None:
    assert find_event_cause(creating(*events, event("Pulled", at=59))) is None


@given(some_events)
def test_whatever_is_recorded_has_a_stage(events: list[PodEvent]) -> None:
    assert find_stage(creating(*events)).reason in ("ContainerCreating", "ImagePulling", "Initializing")


def test_only_what_the_status_leaves_open_is_asked_for() -> None:
    assert creating().needs_events(NOW)
    assert creating(reason="PodInitializing").needs_events(NOW)
    assert creating(reason="CrashLoopBackOff").needs_events(NOW), "a probe or hook may be why"
    assert not creating().needs_events("2026-11-21T12:00:02Z"), "nothing is known so early"
    for reason in ("ImagePullBackOff", "CreateContainerConfigError"):
        assert not creating(reason=reason).needs_events(NOW)


def test_stages() -> None:
    pulling = find_stage(creating(event("Scheduled"), event("Pulling", 'Pulling image "x"', at=12)))
    assert (pulling.reason, pulling.message) == (
        "ImagePulling",
        'Pulling image "x" since 2026-11-21T12:00:12Z on node north',
    )
    hook = find_stage(creating(event("Started", at=12, container="log")))
    assert "container log has started and its postStart hook has not ended" in hook.message
    assert find_stage(creating(event("Scheduled"))).reason == "ContainerCreating"


def test_a_failing_hook_is_said_of_the_container_that_ends(resource: Resource) -> None:
    hook = event("FailedPostStartHook", "PostStartHook failed", container="engine")
    found = find_stall_reason(Observed(None, (creating(hook, reason="CrashLoopBackOff"),)), resource().spec, NOW)
    assert found is not None
    assert (found.reason, found.message) == ("LifecycleHookFailed", "ride-1: PostStartHook failed")
    probe = event("Killing", "Container engine failed liveness probe, will be restarted", container="engine")
    found = find_stall_reason(Observed(None, (creating(probe, reason="CrashLoopBackOff"),)), resource().spec, NOW)
    assert found is not None
    assert (found.reason, "failed liveness probe" in found.message) == ("EngineCrashLoop", True)


def test_events_of_every_recorder_are_read() -> None:
    kubelet: dict[str, Any] = {
        "metadata": {"creationTimestamp": "2026-11-21T12:00:01Z"},
        "reason": "FailedMount",
        "note": "two\n lines",
        "deprecatedCount": 7,
        "deprecatedLastTimestamp": "2026-11-21T12:00:30Z",
        "regarding": {"kind": "Pod", "fieldPath": "spec.initContainers{fetch}"},
        "eventTime": None,
        "series": None,
    }
    scheduler: dict[str, Any] = {
        "metadata": {"creationTimestamp": "2026-11-21T12:00:00Z"},
        "reason": "FailedScheduling",
        "note": "x" * 5000,
        "eventTime": "2026-11-21T12:00:00.123456Z",
        "series": {"count": 3, "lastObservedTime": "2026-11-21T12:00:31.5Z"},
        "regarding": {"kind": "Pod"},
    }
    first, second = read_events([scheduler, kubelet])
    assert first == PodEvent("FailedMount", "two lines", "fetch", 7, "2026-11-21T12:00:30Z")
    assert (second.count, second.last, len(second.note)) == (3, "2026-11-21T12:00:31Z", MAX_NOTE)
    assert read_events([{}]) == (PodEvent("", "", "", 1, ""),)
