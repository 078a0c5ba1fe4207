"""What stands in a fleet's way is found in what the cluster says, and named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator.status.failing_pods import (
    NOW,
    REFUSED,
    claiming,
    crashing,
    deployment,
    ended,
    initializing,
    pod,
    running,
    unscheduled,
    waiting,
)

from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.labels import MODEL_EXIT_STATUS
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.observed import Observed
from paternoster_operator.report.causes.stage import find_stage
from paternoster_operator.report.causes.stall_reason import find_stall_reason
from paternoster_operator.report.model_fetch import find_downloads

SCHEDULER = yaml.safe_load(Path(__file__).with_name("scheduler_messages.yaml").read_text())
Resource = Callable[..., LLMDeployment]


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (waiting("ImagePullBackOff", "no such image"), "ImagePullFailed", "ImagePullBackOff: no such image"),
        (waiting("CreateContainerConfigError", 'secret "k" not found'), "ConfigurationMissing", 'secret "k" not found'),
        (waiting("CrashLoopBackOff", "back-off", ended(1, "a\nboom\n")), "EngineCrashLoop", "boom"),
        (waiting("CrashLoopBackOff", "", ended(MODEL_EXIT_STATUS, "no file")), "ModelSourceFailed", "no file"),
        (pod(containerStatuses=[{"state": ended(MODEL_EXIT_STATUS, "gone")}]), "ModelSourceFailed", "gone"),
        (waiting("CrashLoopBackOff", "", ended(1)), "EngineCrashLoop", "ended with exit code 1"),
        (waiting("CrashLoopBackOff", "", ended(139)), "EngineCrashLoop", "exit code 139 (SIGSEGV)"),
        (waiting("CrashLoopBackOff", "ended with 1; see x.log"), "EngineCrashLoop", "see x.log"),
        (waiting("ImagePullBackOff", "no such image", ended(1, "boom")), "ImagePullFailed", "no such image"),
        (waiting("RunContainerError", "no such command"), "ContainerCannotRun", "no such command"),
        (crashing(ended(128, "exec: not found", "StartError")), "ContainerCannotRun", "exec: not found"),
        (running(restarts=2, last=ended(137, "", "OOMKilled")), "OOMKilled", "its node ran out of memory"),
        (running(restarts=1, last=ended(137, "", "OOMKilled")), None, ""),
        (initializing({"state": {"waiting": {"reason": "ErrImagePull"}}}), "ImagePullFailed", "ErrImagePull"),
        (
            initializing({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(1, "no bucket")}),
            "EngineCrashLoop",
            "no bucket",
        ),
        (
            pod(containerStatuses=[{"name": "log", "state": ended(MODEL_EXIT_STATUS, "x"), "restartCount": 2}]),
            "EngineCrashLoop",
            "ride-1: container log: ended with exit code 3: x",
        ),
        (
            initializing(
                {"state": ended(0, "", "Completed"), "ready": True},
                state={"waiting": {"reason": "CrashLoopBackOff"}},
                lastState=ended(1, "boom"),
            ),
            "EngineCrashLoop",
            "boom",
        ),
        (initializing({"state": {"running": {}}, "ready": False}), None, ""),
        (unscheduled("a text of tomorrow, about 1 gpu claim"), "Unschedulable", "ride-1: a text of tomorrow, about 1"),
        (
            unscheduled("0/1 nodes are available: 1 weary. Hm."),
            "Unschedulable",
            "no node takes it: weary. Hm (1 of 1 nodes)",
        ),
        (claiming("2026-11-21T12:00:00Z"), "InsufficientGPUs", "template one-gpu"),
        (claiming("2026-11-21T12:00:25Z"), None, ""),
        (claiming("2026-11-21T12:00:00Z", "gpu"), None, ""),
        (waiting("ContainerCreating"), None, ""),
        (running(restarts=3, last=ended(1, "boom")), "EngineCrashLoop", "boom"),
        (running(restarts=1, last=ended(137, "")), None, ""),
    ],
)
def test_pods(resource: Resource, found: dict[str, Any], reason: str | None, message: str) -> None:
    stall = find_stall_reason(Observed.from_cluster(None, [found]), resource().spec, NOW)
    assert (stall.reason if stall else None) == reason
    assert stall is None or (message in stall.message and "ride-1" in stall.message)


def test_whether_it_is_the_models_image_that_is_missing(resource: Resource) -> None:
    spec = resource(model={"source": "oci://ghcr.io/8b:v1/models"}).spec
    for image, of in (("ghcr.io/8b:v1", "ride-1: model.source: "), ("ghcr.io/engine:v1", "ride-1: ")):
        message = f'Back-off pulling image "{image}": ErrImagePull: not found'
        stall = find_stall_reason(Observed.from_cluster(None, [waiting("ImagePullBackOff", message)]), spec, NOW)
        assert stall is not None
        assert stall.reason == "ImagePullFailed"
        assert stall.message.startswith(f"{of}ImagePullBackOff: {message}; see that the registry has")


def test_an_image_on_its_way_is_told(resource: Resource) -> None:
    observed = Observed.from_cluster(None, [waiting("ContainerCreating")])
    downloads = find_downloads(observed, resource(model={"source": "oci://ghcr.io/8b:v1"}).spec)
    assert downloads == "oci://ghcr.io/8b:v1 is pulled and mounted for ride-1"
    assert find_downloads(observed, resource().spec) == ""
    running = Observed.from_cluster(None, [pod(containerStatuses=[{"name": "engine", "state": {"running": {}}}])])
    assert find_downloads(running, resource(model={"source": "oci://ghcr.io/8b:v1"}).spec) == ""


@pytest.mark.parametrize("entry", SCHEDULER, ids=lambda entry: f"{entry['case']} {'+'.join(entry['versions'])}")
def test_what_schedulers_say(resource: Resource, entry: dict[str, Any]) -> None:
    found = find_stall_reason(
        Observed.from_cluster(None, [unscheduled(entry["message"], **entry["requests"])]), resource().spec, NOW
    )
    assert found is not None
    assert found.reason == entry["reason"]
    assert (
        found.message.partition("; label a node")[0].partition("; add to tolerations")[0] == f"ride-1: {entry['said']}"
    )


def test_gpus_have_the_name_that_the_manifest_gives_them(resource: Resource) -> None:
    named = resource(resources={"gpu": {"count": 1, "resourceName": "example.com/gpu"}}).spec
    for name, reason in (("example.com/gpu", "InsufficientGPUs"), ("nvidia.com/gpu", "Unschedulable")):
        found = find_stall_reason(
            Observed.from_cluster(None, [unscheduled(f"0/2 nodes are available: 2 Insufficient {name}.")]), named, NOW
        )
        assert found is not None
        assert found.reason == reason


@pytest.mark.parametrize(
    ("spec", "suffix"),
    [
        ({}, "; its KV cache takes up to 512Mi (engine.kvCacheMemory), the model the rest"),
        (
            {"engine": {"kvCacheMemory": "1Gi"}},
            "; its KV cache takes up to 1Gi (engine.kvCacheMemory), the model the rest",
        ),
        ({"resources": {"gpu": {"count": 1}}}, ""),
    ],
)
def test_out_of_memory_is_told_with_the_limit(resource: Resource, spec: dict[str, Any], suffix: str) -> None:
    found = crashing(ended(137, "loading the model", "OOMKilled"), memory="2Gi")
    stall = find_stall_reason(Observed.from_cluster(None, [found]), resource(**spec).spec, NOW)
    assert stall is not None
    assert stall.reason == "OOMKilled"
    assert stall.message == f"ride-1: killed because it needs more memory than its limit of 2Gi{suffix}"


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
def test_deployments(resource: Resource, document: dict[str, Any], reason: str | None) -> None:
    stall = find_stall_reason(Observed.from_cluster(document, []), resource().spec, NOW)
    assert (stall.reason if stall else None) == reason


@pytest.mark.parametrize(
    ("message", "reason", "step"),
    [
        (
            'pods "x" is forbidden: error looking up service account ns/y: serviceaccount "y" not found',
            "ConfigurationMissing",
            "make ServiceAccount y, or change serviceAccountName",
        ),
        (
            'pods "x" is forbidden: no PriorityClass with name fast was found',
            "ConfigurationMissing",
            "make PriorityClass fast, or change priorityClassName",
        ),
        (
            'pods "x" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
            "ConfigurationMissing",
            "make RuntimeClass nvidia, or change runtimeClassName",
        ),
        (
            'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
            "PodCreationFailed",
            "keep podTemplate within restricted:latest",
        ),
        (
            'admission webhook "policy.example.com" denied the request: no',
            "PodCreationFailed",
            "ask for what the webhook policy.example.com allows",
        ),
        (
            'Internal error occurred: failed calling webhook "policy.example.com": dial tcp: connection refused',
            "PodCreationFailed",
            "see that the webhook policy.example.com runs",
        ),
        (
            'pods "x" is forbidden: [maximum cpu usage per Container is 1, but limit is 2]',
            "PodCreationFailed",
            "ask for what the LimitRange allows",
        ),
        ("a text of tomorrow", "PodCreationFailed", ""),
    ],
)
def test_a_pod_that_admission_refuses(resource: Resource, message: str, reason: str, step: str) -> None:
    observed = Observed.from_cluster(deployment(REFUSED | {"message": message}), [])
    stall = find_stall_reason(observed, resource().spec, NOW)
    assert stall is not None
    assert stall.reason == reason
    assert stall.message.startswith(message)
    assert step in stall.message


def test_gates_that_are_not_removed(resource: Resource) -> None:
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}
    document = pod(conditions=[gated])
    document["spec"] = {"schedulingGates": [{"name": "example.com/quota"}]}
    for created, reason in (("2026-11-21T12:00:25Z", None), ("2026-11-21T12:00:00Z", "SchedulingGated")):
        document["metadata"]["creationTimestamp"] = created
        observed = Observed.from_cluster(None, [document])
        stall = find_stall_reason(observed, resource().spec, NOW)
        assert (stall.reason if stall else None) == reason
        assert stall is None or "example.com/quota" in stall.message
        assert find_stage(observed.pods[0]).reason == "SchedulingGated"
        assert not observed.pods[0].holds_devices


def test_pods_that_their_node_refuses_one_after_the_other(resource: Resource) -> None:
    def refused(name: str, created: str, reason: str = "UnexpectedAdmissionError") -> dict[str, Any]:
        status = {"phase": "Failed", "reason": reason, "message": "Allocate failed: no healthy device"}
        return {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"nodeName": "n"}, "status": status}

    def stall(*pods: dict[str, Any]) -> Any:
        return find_stall_reason(Observed.from_cluster(deployment(), list(pods)), resource().spec, NOW)

    first, second = refused("a", "2026-11-21T12:00:10Z"), refused("b", "2026-11-21T12:00:20Z")
    found = stall(first, second)
    assert found is not None
    assert (found.reason, found.message) == (
        "PodRejected",
        "b: node n refuses it: UnexpectedAdmissionError: Allocate failed: no healthy device",
    )
    assert stall(first) is None, "the next one may be taken"
    assert stall(refused("a", "2026-11-21T11:00:00Z"), refused("b", "2026-11-21T11:00:00Z")) is None, "long ago"
    evicted = [refused(name, "2026-11-21T12:00:10Z", "Evicted") for name in "ab"]
    assert stall(*evicted) is None, "they ran"


SOURCE = {"source": "hf://org/name"}


def fetching(state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> dict[str, Any]:
    """A pod whose model is fetched, or not."""
    document = initializing({"state": state, "lastState": last or {}, "ready": False, "restartCount": restarts})
    document["status"]["initContainerStatuses"][0]["name"] = "model"
    return document


def failed(reason: str, message: str = "why", status: int = MODEL_EXIT_STATUS) -> dict[str, Any]:
    fetch_status = FetchStatus(state="failed", reason=reason, message=message, transient=status == 1)
    return ended(status, f"{fetch_status.to_json_line()}\n")


BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container=model"}}
JUST_BEGUN = {"running": {"startedAt": "2026-11-21T12:00:00Z"}}
LONG_BEGUN = {"running": {"startedAt": "2026-11-21T11:59:00Z"}}


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (fetching(failed("RevisionNotFound", "no v9")), "RevisionNotFound", "ride-1: container model: no v9"),
        (fetching(BACK_OFF, failed("Unauthorized")), "Unauthorized", "why"),
        (fetching(failed("NoSpace", status=1)), "NoSpace", "why"),
        (fetching(BACK_OFF, failed("Unreachable", status=1), restarts=7), "Unreachable", "why"),
        # The next try has only begun: it is not another fault for a second.
        (fetching(JUST_BEGUN, failed("Unauthorized"), restarts=1), "Unauthorized", "why"),
        # It has got further than the last one.
        (fetching(LONG_BEGUN, failed("Unauthorized"), restarts=5), None, ""),
        (fetching(LONG_BEGUN, ended(137, "", "OOMKilled"), restarts=5), None, ""),
        (fetching(JUST_BEGUN), None, ""),
        (fetching({"waiting": {"reason": "PodInitializing"}}), None, ""),
        (fetching({"waiting": {"reason": "CreateContainerConfigError"}}), "ConfigurationMissing", "container model"),
        (fetching(BACK_OFF, ended(1, "Traceback\nboom")), "EngineCrashLoop", "ended with exit code 1: boom"),
        (
            fetching(
                BACK_OFF, ended(137, FetchStatus(state="downloading", done=10**9, total=16 * 10**9).to_json_line())
            ),
            "EngineCrashLoop",
            "ended with exit code 137 (SIGKILL): at 1.0 of 16.0 GB",
        ),
        (fetching(ended(0, FetchStatus(state="ready", path="/x").to_json_line(), "Completed")), None, ""),
    ],
)
def test_a_model_that_is_fetched(resource: Resource, found: dict[str, Any], reason: str | None, message: str) -> None:
    stall = find_stall_reason(Observed.from_cluster(None, [found]), resource(model=SOURCE).spec, NOW)
    assert (stall.reason if stall else None) == reason
    assert stall is None or message in stall.message


def test_who_fetches_is_known_by_its_source_too(resource: Resource) -> None:
    """A container of a template may have that name where nothing is fetched; it has no words that are believed."""
    found = fetching(BACK_OFF, failed("Unauthorized"))
    stall = find_stall_reason(Observed.from_cluster(None, [found]), resource().spec, NOW)
    assert stall is not None
    assert stall.reason == "EngineCrashLoop"


def made(found: dict[str, Any], name: str, template: str, created: str) -> dict[str, Any]:
    found["metadata"] = {"name": name, "labels": {"pod-template-hash": template}, "creationTimestamp": created}
    return found


def test_pods_of_older_templates_are_no_reason(resource: Resource) -> None:
    """A rollout keeps them until the pods that replace them serve, however they fail."""
    older = made(fetching(BACK_OFF, failed("RevisionNotFound")), "ride-1", "a", "2026-11-21T12:00:00Z")
    newer = made(fetching(JUST_BEGUN), "ride-2", "b", "2026-11-21T12:00:10Z")
    spec = resource(model=SOURCE).spec
    assert find_stall_reason(Observed.from_cluster(None, [older, newer]), spec, NOW) is None

    back = made(fetching(BACK_OFF, failed("Unauthorized")), "ride-3", "a", "2026-11-21T12:00:20Z")
    stall = find_stall_reason(Observed.from_cluster(None, [newer, back]), spec, NOW)
    assert stall is not None
    assert stall.reason == "Unauthorized"
    assert "ride-3" in stall.message
