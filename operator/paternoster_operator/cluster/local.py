"""This machine as a cluster: objects in memory, an engine Deployment's pods as processes."""

import asyncio
import hashlib
import json
import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Event, Key, Object
from paternoster_operator.local.pod import LocalPod
from paternoster_operator.local.rollout import plan_rollout

log = logging.getLogger(__name__)

KEPT_EVENTS = 200


class LocalCluster:
    """Implements :class:`Cluster` without an API server; ``on_change(key)`` is called whenever something changed."""

    def __init__(self, on_change: Callable[[Key], None], logs: Path) -> None:
        self.logs = logs
        self.events: dict[Key, deque[tuple[str, Event]]] = {}
        """(RFC 3339 time, event) of each LLMDeployment, oldest first."""
        self.num_events: Counter[Key] = Counter()
        """How many there were in all."""
        self._on_change = on_change
        self._resources: dict[Key, Object] = {}
        self._children: dict[tuple[str, Key], Object] = {}
        self._pods: dict[Key, dict[str, LocalPod]] = {}
        self._version = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, resource: LLMDeployment) -> Key:
        """Create or replace an LLMDeployment, as ``kubectl apply`` would."""
        document = resource.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
        key = Key(resource.metadata.namespace, resource.metadata.name)
        before = self._resources.get(key)
        metadata = document["metadata"]
        if before is None:
            metadata |= {"uid": str(uuid4()), "generation": 1, "creationTimestamp": _now()}
        else:
            kept = before["metadata"]
            metadata |= {name: kept[name] for name in ("uid", "generation", "creationTimestamp")}
            metadata["generation"] += before["spec"] != document["spec"]
            document["status"] = before.get("status", {})
        self._resources[key] = self._stamped(document)
        self._on_change(key)
        return key

    async def remove(self, key: Key, *, at_once: bool = False) -> None:
        """Delete an LLMDeployment and, as garbage collection would, everything it owns; waits for its pods to end."""
        self._resources.pop(key, None)
        for kind, owner in [child for child in self._children if child[1] == key]:
            del self._children[kind, owner]
        self._on_change(key)
        pods = list(self._pods.get(key, {}).values())
        await asyncio.gather(*(self._end(key, pod, at_once=at_once) for pod in pods))
        self._pods.pop(key, None)

    async def close(self, *, at_once: bool = False) -> None:
        """Delete everything."""
        await asyncio.gather(*(self.remove(key, at_once=at_once) for key in self.list()))

    def kill(self) -> None:
        """End every process now."""
        for pods in self._pods.values():
            for pod in pods.values():
                if pod.process is not None:
                    pod.process.kill()

    def objects(self) -> list[Object]:
        """Every LLMDeployment."""
        return list(self._resources.values())

    def list(self) -> Sequence[Key]:
        return list(self._resources)

    def get(self, key: Key) -> Mapping[str, Any] | None:
        return self._resources.get(key)

    def deployment(self, key: Key) -> Mapping[str, Any] | None:
        document = self._children.get(("Deployment", key))
        return None if document is None else {**document, "status": self._deployment_status(key, document)}

    def pods(self, key: Key) -> Sequence[Mapping[str, Any]]:
        return [pod.document() for pod in self._pods.get(key, {}).values()]

    async def apply(self, obj: Object) -> None:
        owner = next(ref["name"] for ref in obj["metadata"]["ownerReferences"] if ref["controller"])
        key = Key(obj["metadata"]["namespace"], owner)
        before = self._children.get((obj["kind"], key))
        generation = before["metadata"]["generation"] if before is not None else 0
        changed = before is None or before["spec"] != obj["spec"]
        metadata = {**obj["metadata"], "generation": generation + changed}
        self._children[obj["kind"], key] = self._stamped({**obj, "metadata": metadata})
        if obj["kind"] == "Deployment":
            self._roll(key)

    async def delete(self, api_version: str, kind: str, namespace: str, name: str) -> None:
        self._children.pop((kind, Key(namespace, name)), None)
        if kind == "Deployment":
            self._roll(Key(namespace, name))

    async def write_status(self, key: Key, status: Object) -> None:
        resource = self._resources.get(key)
        if resource is not None:
            self._resources[key] = self._stamped({**resource, "status": status})

    async def record_event(self, key: Key, event: Event) -> None:
        self.events.setdefault(key, deque(maxlen=KEPT_EVENTS)).append((_now(), event))
        self.num_events[key] += 1

    def _roll(self, key: Key) -> None:
        """One step of the Deployment's rollout; every change of a pod brings the next."""
        deployment = self._children.get(("Deployment", key))
        pods = self._pods.setdefault(key, {})
        active = [pod for pod in pods.values() if not pod.deleting]
        if deployment is None:
            for pod in active:
                self._spawn(self._end(key, pod))
            return
        spec = deployment["spec"]
        template_hash = _hash(spec["template"])
        rolling = spec["strategy"]["rollingUpdate"]
        step = plan_rollout(
            active,
            replicas=spec["replicas"],
            template_hash=template_hash,
            max_surge=rolling["maxSurge"],
            max_unavailable=rolling["maxUnavailable"],
        )
        for name in step.end:
            self._spawn(self._end(key, pods[name]))
        for _ in range(step.start):
            name = f"{deployment['metadata']['name']}-{template_hash[:6]}-{secrets.token_hex(3)[:5]}"
            pods[name] = LocalPod(
                name, key.namespace, spec["template"], template_hash, self.logs, lambda: self._pod_changed(key)
            )

    def _pod_changed(self, key: Key) -> None:
        self._roll(key)
        self._on_change(key)

    async def _end(self, key: Key, pod: LocalPod, *, at_once: bool = False) -> None:
        await pod.delete(at_once=at_once)
        self._pods.get(key, {}).pop(pod.name, None)
        if key in self._resources:
            self._pod_changed(key)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _deployment_status(self, key: Key, deployment: Object) -> Object:
        current = _hash(deployment["spec"]["template"])
        pods = [pod for pod in self._pods.get(key, {}).values() if not pod.deleting]
        ready = sum(pod.ready for pod in pods)
        wanted = deployment["spec"]["replicas"]
        return {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(pods),
            "updatedReplicas": sum(pod.template_hash == current for pod in pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "conditions": [
                {"type": "Available", "status": "True" if ready >= wanted else "False"},
                {"type": "Progressing", "status": "True"},
            ],
        }

    def _stamped(self, document: Object) -> Object:
        self._version += 1
        return {**document, "metadata": {**document["metadata"], "resourceVersion": str(self._version)}}


def _hash(template: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
