"""Whatever keeps a pod from starting stands in the fleet's status within 30 s of ``kubectl apply``, with a next step.

A pod that waits for its volumes, its sandbox or a hook says ``ContainerCreating`` throughout. Kubelet, scheduler,
admission and controllers know why, each in a place of its own; a user looks at the LLMDeployment.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from paternoster_e2e.cluster.node import PAUSE_IMAGE
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import Document, Kubectl, condition, until

pytestmark = pytest.mark.timeout(600)

WITHIN_SECONDS = 30
CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
WEBHOOK, RUNTIME = "paternoster-e2e-away", "paternoster-e2e-nowhere"


class Broken(NamedTuple):
    """A spec that cannot work, the reason that is given for it, and what its message must have."""

    spec: Document
    reason: str
    words: tuple[str, ...]


def pod(**spec: Any) -> Document:
    return {"podTemplate": {"spec": spec}}


def mounting(**volume: Any) -> Document:
    """The engine mounts one more volume."""
    mount = {"name": "extra", "mountPath": "/extra"}
    return pod(volumes=[{"name": "extra", **volume}], containers=[{"name": "engine", "volumeMounts": [mount]}])


def beside(kind: str, name: str, **fields: Any) -> Document:
    """One more container, whose image is there."""
    return pod(**{kind: [{"name": name, "image": PAUSE_IMAGE, "securityContext": CONFINED, **fields}]})


BROKEN = {
    "configmap-volume": Broken(
        mounting(configMap={"name": "absent"}), "ConfigurationMissing", ('configmap "absent" not found', "make conf")
    ),
    "secret-volume": Broken(
        mounting(secret={"secretName": "absent"}), "ConfigurationMissing", ('secret "absent" not found', "make secret")
    ),
    "key-in-volume": Broken(
        mounting(configMap={"name": "kube-root-ca.crt", "items": [{"key": "absent", "path": "x"}]}),
        "ConfigurationMissing",
        ("config key: absent", "add the key"),
    ),
    "configmap-env": Broken(
        pod(containers=[{"name": "engine", "envFrom": [{"configMapRef": {"name": "absent"}}]}]),
        "ConfigurationMissing",
        ('configmap "absent" not found',),
    ),
    "csi-driver": Broken(
        mounting(csi={"driver": "nowhere.example.com"}), "VolumeMountFailed", ("FailedMount", "nowhere.example.com")
    ),
    "gate": Broken(
        pod(schedulingGates=[{"name": "example.com/quota"}]), "SchedulingGated", ("example.com/quota", "remove it")
    ),
    "image": Broken({"engine": {"image": "127.0.0.1:1/x:1"}}, "ImagePullFailed", ("127.0.0.1:1/x:1", "see that nodes")),
    "other-engine": Broken(
        {
            "model": {"source": "file:///models/any"},
            "engine": {
                "runtime": {"type": "OpenAI", "image": PAUSE_IMAGE, "command": ["llama-server"]},
                "kvCacheMemory": None,
            },
        },
        "ContainerCannotRun",
        ('exec: "llama-server": executable file not found', "name an image that can run llama-server"),
    ),
    "hook": Broken(
        {
            **beside("containers", "hook", lifecycle={"postStart": {"exec": {"command": ["false"]}}}),
            "drain": {"timeoutSeconds": 0},
        },
        "LifecycleHookFailed",
        ("container hook", "PostStart"),
    ),
    "init": Broken(
        beside("initContainers", "check", command=["false"]),
        "EngineCrashLoop",
        ("container check", "ended with exit code 1"),
    ),
    "sidecar": Broken(
        beside("containers", "log", command=["false"]), "EngineCrashLoop", ("container log", "ended with exit code 1")
    ),
    "account": Broken(
        {"serviceAccountName": "absent"}, "ConfigurationMissing", ('serviceaccount "absent" not found', "make Serv")
    ),
    "priority": Broken({"priorityClassName": "absent"}, "ConfigurationMissing", ("PriorityClass", "absent")),
    "runtime": Broken({"runtimeClassName": "absent"}, "ConfigurationMissing", ('RuntimeClass "absent" not found',)),
    "handler": Broken({"runtimeClassName": RUNTIME}, "PodSandboxFailed", ("FailedCreatePodSandBox", "nowhere")),
    "security": Broken(
        beside("containers", "root", securityContext={"allowPrivilegeEscalation": True}),
        "PodCreationFailed",
        ('violates PodSecurity "restricted', "keep podTemplate within"),
    ),
    "webhook": Broken(
        {"podTemplate": {"metadata": {"labels": {"e2e": "webhook"}}}},
        "PodCreationFailed",
        (f'failed calling webhook "{WEBHOOK}.example.com"', "see that the webhook"),
    ),
    "claim": Broken(mounting(persistentVolumeClaim={"claimName": "absent"}), "VolumeClaimNotFound", ("Claim absent",)),
    "unbound": Broken(
        mounting(persistentVolumeClaim={"claimName": "unbound"}),
        "VolumeClaimUnbound",
        ("unbound", "no storage class is set"),
    ),
    "selector": Broken({"nodeSelector": {"e2e": "nowhere"}}, "Unschedulable", ("affinity/selector", "change nodeSel")),
}


@pytest.fixture
def surroundings(kubectl: Kubectl, namespace: str) -> Iterator[None]:
    """What some of the manifests refer to: a claim without a volume, a runtime that no node has, a webhook away."""
    place = {"namespace": namespace}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    webhook = {
        "name": f"{WEBHOOK}.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "objectSelector": {"matchLabels": {"e2e": "webhook"}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
    }
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    items: list[Document] = [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": RUNTIME}, "handler": "nowhere"},
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": WEBHOOK},
            "webhooks": [webhook],
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "unbound", **place},
            "spec": request,
        },
    ]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items})
    yield
    kubectl("delete", "runtimeclass", RUNTIME)
    kubectl("delete", "validatingwebhookconfiguration", WEBHOOK)


def test_the_cause_is_in_the_status_within_30_seconds(fleet: Any, surroundings: None) -> None:
    fleets = {name: Fleet(fleet.kubectl, fleet.namespace, "", name) for name in BROKEN}
    items = [fleets[name].document(**broken.spec) for name, broken in BROKEN.items()]
    began = time.monotonic()
    fleet.kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items})
    seconds: dict[str, float] = {}

    def all_reported() -> bool:
        for found in fleet.kubectl.list("llmd", fleet.namespace):
            name = found["metadata"]["name"]
            broken, stalled, ready = BROKEN[name], condition(found, "Stalled"), condition(found, "Ready")
            right = stalled.get("reason") == broken.reason == ready["reason"] and ready["status"] == "False"
            if right and all(words in stalled["message"] for words in broken.words):
                seconds.setdefault(name, round(time.monotonic() - began, 1))
        return len(seconds) == len(BROKEN)

    try:
        until(all_reported, "each cause in its status", WITHIN_SECONDS)
    except AssertionError:
        unreported = {
            found["metadata"]["name"]: found["status"].get("conditions") for found in unreported_fleets(fleet, seconds)
        }
        raise AssertionError(f"not within {WITHIN_SECONDS} s: {unreported}; reported: {seconds}") from None
    finally:
        print(f"seconds until each cause was in its status: {seconds}")
    for name, broken in BROKEN.items():
        until(lambda name=name, broken=broken: fleets[name].warned_of(broken.reason), f"a Warning event for {name}", 30)


def unreported_fleets(fleet: Any, reported: dict[str, float]) -> list[Document]:
    return [found for found in fleet.kubectl.list("llmd", fleet.namespace) if found["metadata"]["name"] not in reported]


def test_it_starts_once_what_was_missing_is_there(fleet: Any) -> None:
    fleet.apply(**BROKEN["configmap-volume"].spec)
    fleet.until_stalled("ConfigurationMissing")
    fleet("create", "configmap", "absent", "--from-literal=x=1")
    # The kubelet tries again after up to two minutes.
    fleet.until_ready(seconds=240)


class TestEvictions:
    """A pod that was ended from outside is no replica, and the fleet's events say so."""

    def test_by_the_api(self, fleet: Any) -> None:
        fleet.apply(drain={"timeoutSeconds": 5})
        fleet.until_ready()
        [before] = fleet.pods()
        metadata = {"name": before["metadata"]["name"], "namespace": fleet.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = f"/api/v1/namespaces/{fleet.namespace}/pods/{metadata['name']}/eviction"
        fleet.kubectl("create", f"--raw={path}", "--filename=-", document=eviction)
        until(lambda: metadata["name"] in evicted(fleet), "a Warning event names the pod", 60)
        fleet.until_ready()

    def test_refused_by_its_node(self, fleet: Any) -> None:
        """A pod that is put on its node by name is too large for it, and so is each that replaces it."""
        fleet.apply(
            replicas=1,
            resources={"requests": {"cpu": "64"}, "limits": {"cpu": "64"}},
            podTemplate={"spec": {"nodeName": "node"}},
        )
        assert "node node refuses it: OutOfcpu" in fleet.until_stalled("PodRejected")
        assert len([pod for pod in fleet.pods() if pod["status"]["phase"] == "Failed"]) > 1
        until(lambda: max(replicas(fleet)) <= 1, "none of the pods that failed is counted", 30)
        failed = [
            event for event in fleet.kubectl.list("events", fleet.namespace) if event["reason"] == "ReplicaFailed"
        ]
        assert 1 <= len(failed) <= 2, "one event for all that are refused with the same words"
        fleet("delete", "llmd", fleet.name)


def evicted(fleet: Any) -> str:
    found = fleet.kubectl.list("events", fleet.namespace)
    return " ".join(event["message"] for event in found if event["reason"] == "ReplicaEvicted")


def replicas(fleet: Any) -> tuple[int, int]:
    """Replicas in the status and in the scale subresource."""
    words = ("get", "llmd", fleet.name, "--subresource=scale", "--output=jsonpath={.status.replicas}")
    return fleet.get()["status"]["replicas"], int(fleet(*words))
