"""Nodes that are not there, and their pods Running and Ready: ``python -m performance.fake_nodes``.

A real kubelet runs about a hundred pods; thousands of pods take this instead. To the API server it looks the same:
Node objects, statuses with an address, deletions that are finished. Only pods that tolerate the taint land here.
"""

import argparse
import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from performance.api import MERGE, Api, ApiError, Document

PODS_PER_NODE = 110
LABEL = "paternoster.dev/fake-node"
"""Label and taint of every node made here."""
TOLERATION = {"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}
GONE = (404, 409)
"""Answers about a pod that has changed or ended meanwhile; the watch sends what is true now."""


def node(number: int) -> Document:
    """A node with room for :data:`PODS_PER_NODE` pods, ready from the start."""
    name = f"fake-{number:03d}"
    now = timestamp()
    room = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": str(PODS_PER_NODE)}
    ready = {"reason": "KubeletReady", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {LABEL: "true", "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": LABEL, "effect": "NoSchedule"}]},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", **ready}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def running(pod: Document, address: str) -> Document:
    """The status that a kubelet writes once every container is ready."""
    now = timestamp()
    types = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "10.200.0.1",
        "hostIPs": [{"ip": "10.200.0.1"}],
        "startTime": now,
        # A merge patch replaces the list, so what the scheduler wrote is repeated.
        "conditions": [
            *({"type": type_, "status": "True", "lastTransitionTime": now} for type_ in types),
            *(found for found in pod["status"].get("conditions", []) if found["type"] == "PodScheduled"),
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": container["image"],
                "containerID": f"fake://{pod['metadata']['uid']}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


class Kubelets:
    """All of them, with ``at_once`` requests in flight."""

    def __init__(self, api: Api, subnet: str, at_once: int) -> None:
        self._api = api
        self._subnet = subnet
        self._at_once = at_once
        self._queue: asyncio.Queue[Document] = asyncio.Queue()
        self._done: set[tuple[str, bool]] = set()
        """(uid, deleting) of what was written: a watch sends an object once more for each change of it."""
        self._count = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._at_once):
                tasks.create_task(self._work())
            # Only pods that have a node.
            async for kind, pod in self._api.watch("/api/v1/pods", {"fieldSelector": "spec.nodeName!="}):
                self._see(kind, pod)

    def _see(self, kind: str, pod: Document) -> None:
        uid, deleting = pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]
        if kind == "DELETED":
            self._done -= {(uid, True), (uid, False)}
        elif (uid, deleting) not in self._done and (deleting or pod["status"].get("phase") == "Pending"):
            self._done.add((uid, deleting))
            self._queue.put_nowait(pod)

    async def _work(self) -> None:
        while True:
            pod = await self._queue.get()
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            try:
                if "deletionTimestamp" in metadata:
                    now = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
                    await self._api.send("DELETE", path, now)
                else:
                    status = {"metadata": {"uid": metadata["uid"]}, "status": running(pod, self._address())}
                    await self._api.send("PATCH", path + "/status", status, MERGE)
            except ApiError as error:
                if error.status not in GONE:
                    raise

    def _address(self) -> str:
        number = self._count
        self._count += 1
        return f"{self._subnet}.{number // 250}.{number % 250 + 1}"


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def run(args: argparse.Namespace) -> None:
    async with Api(args.kubeconfig) as api:
        for number in range(args.nodes):
            await api.send("POST", "/api/v1/nodes", node(number))
        print(json.dumps({"nodes": args.nodes}), flush=True)
        await Kubelets(api, args.subnet, args.at_once).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--subnet", default="10.64", help="first two numbers of the pods' addresses")
    parser.add_argument("--at-once", type=int, default=32, help="requests in flight")
    uvloop.run(run(parser.parse_args()))
