"""A node without a kubelet: its pods are up as soon as they are bound, and gone as soon as they are deleted."""

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from paternoster_e2e.fakes.api_proxy import ApiProxy, api_proxy
from paternoster_e2e.kubectl import CommandError, Document, Kubectl

KEY = "paternoster.dev/fake-node"
"""Label and taint of the node."""
LOOK_SECONDS = 0.25
HEARTBEAT_SECONDS = 10.0


class FakeNode:
    """Each pod gets a loopback address of its own, at which one process here can play every engine."""

    def __init__(self, api: ApiProxy, name: str) -> None:
        self.api = api
        self.name = name
        self.finished: list[Document] = []
        """Pods as they were when their deletion began."""
        self._addresses = (f"127.1.{high}.{low}" for high, low in itertools.product(range(256), range(1, 255)))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def placement(self) -> dict[str, Any]:
        """The parts of an LLMDeployment's spec that put its pods here."""
        toleration = {"key": KEY, "operator": "Equal", "value": self.name, "effect": "NoSchedule"}
        return {"nodeSelector": {KEY: self.name}, "tolerations": [toleration]}

    def start(self) -> None:
        taint = {"key": KEY, "value": self.name, "effect": "NoSchedule"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {KEY: self.name, "kubernetes.io/hostname": self.name}},
            "spec": {"taints": [taint]},
        }
        self.api.send("POST", "/api/v1/nodes", node)
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        for pod in self._pods():
            self._finish(pod)
        self.api.send("DELETE", f"/api/v1/nodes/{self.name}")

    def _run(self) -> None:
        beat = time.monotonic()
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                if time.monotonic() - beat > HEARTBEAT_SECONDS:
                    self._beat()
                    beat = time.monotonic()
                for pod in self._pods():
                    self._advance_pod(pod)
            except CommandError:
                continue  # changed meanwhile, or the API server is away: the next look sees it

    def _advance_pod(self, pod: Document) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            self._finish(pod)
        elif "podIP" not in pod["status"]:
            self.api.patch(f"{_path(pod)}/status", {"status": running(pod, next(self._addresses))})

    def _finish(self, pod: Document) -> None:
        self.finished.append(pod)
        self.api.send("DELETE", f"{_path(pod)}?gracePeriodSeconds=0")

    def _pods(self) -> list[Document]:
        pods: list[Document] = self.api.get(f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}")["items"]
        return pods

    def _beat(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "Fake", "lastHeartbeatTime": now()}
        room = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "200"}
        status = {"conditions": [ready], "capacity": room, "allocatable": room}
        self.api.patch(f"/api/v1/nodes/{self.name}/status", {"status": status})


def running(pod: Document, address: str) -> Document:
    """A kubelet's report of a pod whose containers are all ready."""
    kinds = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now(),
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now()} for kind in kinds],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": True,
                "started": True,
                "state": {"running": {"startedAt": now()}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def fake_node(kubectl: Kubectl, name: str) -> Iterator[FakeNode]:
    """One for as long as the block runs."""
    with api_proxy(kubectl) as api:
        node = FakeNode(api, name)
        node.start()
        try:
            yield node
        finally:
            node.stop()


def _path(pod: Document) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
