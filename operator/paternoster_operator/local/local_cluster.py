"""This machine as a cluster: objects in memory, an engine Deployment's pods as processes."""

import asyncio
import base64
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from paternoster_contract.supervise import supervise_task
from paternoster_operator.api.names import child_name
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.ownership import refuse_foreign
from paternoster_operator.cluster.port import Event, Key, Object, TargetObjects
from paternoster_operator.local.deployment import LocalDeployment
from paternoster_operator.local.ports import PortPool
from paternoster_operator.local.secrets import MountedSecrets

KEPT_EVENTS = 200


class LocalCluster:
    """Implements :class:`Cluster` without an API server; ``on_change(key)`` is called whenever something changed."""

    def __init__(self, on_change: Callable[[Key], None], logs: Path, private: Path | None = None) -> None:
        """``private``: where Secrets are mounted from; without it, a temporary folder."""
        self.logs = logs
        self.events: dict[Key, deque[tuple[str, Event]]] = {}
        """(RFC 3339 time, event) of each LLMDeployment, oldest first."""
        self.num_events: Counter[Key] = Counter()
        """How many there were in all."""
        self._on_change = on_change
        self._resources: dict[Key, Object] = {}
        self._children: dict[tuple[str, Key], Object] = {}
        """Children by kind and the child's own name."""
        self._running: dict[Key, LocalDeployment] = {}
        self._secrets: dict[Key, dict[str, str]] = {}
        """Secrets that no LLMDeployment owns."""
        self._mounted = MountedSecrets(self._find_secret, private)
        self._ports = PortPool()
        self._leaving: dict[Key, dict[LocalDeployment, asyncio.Task[None]]] = {}
        """Deleted, with pods that still finish their requests, and the task that waits for them."""
        self._version = 0

    def find_watch_fault(self, namespace: str) -> None:
        """What is on this machine is always known."""

    def put(self, resource: LLMDeployment) -> Key:
        """Create or replace an LLMDeployment, as ``kubectl apply`` would."""
        document = resource.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
        key = Key(resource.metadata.namespace, resource.metadata.name)
        before = self._resources.get(key)
        metadata = document["metadata"]
        if before is None:
            metadata |= {"uid": str(uuid4()), "generation": 1, "creationTimestamp": _format_now()}
        else:
            previous = before["metadata"]
            metadata |= {name: previous[name] for name in ("uid", "generation", "creationTimestamp")}
            metadata["generation"] += before["spec"] != document["spec"]
            document["status"] = before.get("status", {})
        self._resources[key] = self._add_metadata(document)
        self._on_change(key)
        return key

    async def remove(self, key: Key) -> None:
        """Delete an LLMDeployment and, as garbage collection would, everything it owns; waits for its pods to end."""
        self._resources.pop(key, None)
        for kind, name in [child for child, document in self._children.items() if _find_owner(document).key == key]:
            self._drop_child(kind, name)
        self._on_change(key)
        await asyncio.gather(*self._leaving.get(_child_key(key), {}).values())

    def put_secrets(self, secrets: Mapping[Key, Mapping[str, str]]) -> None:
        """Create or replace Secrets, as ``kubectl apply`` would."""
        self._secrets |= {key: dict(data) for key, data in secrets.items()}
        self._mounted.refresh()

    async def close(self) -> None:
        """Delete everything, and wait for what is being deleted already."""
        await asyncio.gather(*(self.remove(key) for key in list(self._resources)))
        await asyncio.gather(*(task for leaving in self._leaving.values() for task in leaving.values()))
        self._mounted.close()
        self._ports.close()

    def end_routing(self) -> None:
        """No gateway has requests any more: pods that are deleted wait for none."""
        for deployment in self._list_deployments():
            deployment.end_routing()

    def kill(self) -> None:
        """End every process now; a deployment that is not being deleted starts its pods again."""
        for deployment in self._list_deployments():
            deployment.kill()

    def _list_deployments(self) -> list[LocalDeployment]:
        leaving = [deployment for deployments in self._leaving.values() for deployment in deployments]
        return [*self._running.values(), *leaving]

    def list_objects(self) -> list[Object]:
        """Every LLMDeployment."""
        return list(self._resources.values())

    def list_all_pods(self) -> Sequence[Object]:
        """The pods of every LLMDeployment, those included that still finish their requests."""
        return [pod for deployment in self._list_deployments() for pod in deployment.list_pods()]

    def list(self) -> Sequence[Key]:
        return list(self._resources)

    def get(self, key: Key) -> Mapping[str, Any] | None:
        return self._resources.get(key)

    def get_child(self, key: Key, kind: str) -> Mapping[str, Any] | None:
        document = self._children.get((kind, _child_key(key)))
        if document is None or _find_owner(document).key != key:
            return None
        return (
            {**document, "status": self._running[_child_key(key)].build_status()} if kind == "Deployment" else document
        )

    def list_pods(self, key: Key) -> Sequence[Mapping[str, Any]]:
        name = _child_key(key)
        running = [self._running[name]] if self.get_child(key, "Deployment") is not None else []
        return [pod for deployment in (*running, *self._leaving.get(name, {})) for pod in deployment.list_pods()]

    async def read_target(self, key: Key) -> TargetObjects | None:
        """None: this machine has no Deployments but those of its fleets, and a manifest that names one is refused."""
        return None

    async def read_secret(self, key: Key) -> Mapping[str, str] | None:
        return self._find_secret(key)

    async def create_secret(self, key: Key, data: Mapping[str, str]) -> None:
        self._secrets.setdefault(key, dict(data))

    async def apply(self, obj: Object) -> Mapping[str, Any] | None:
        owner = _find_owner(obj)
        resource = self._resources.get(owner.key)
        if resource is None or resource["metadata"]["uid"] != owner.uid:
            return None  # garbage collection would take it at once
        kind, name = obj["kind"], _key_of(obj)
        before = await self.check_owner(obj)
        generation = before["metadata"]["generation"] if before is not None else 0
        changed = before is None or _content_of(before) != _content_of(obj)
        document = self._add_metadata({**obj, "metadata": {**obj["metadata"], "generation": generation + changed}})
        self._children[kind, name] = document
        if kind == "Secret":
            self._mounted.refresh()
        if kind == "Deployment":
            if name not in self._running:
                self._running[name] = LocalDeployment(
                    self.logs, self._mounted, self._ports, lambda: self._on_change(owner.key)
                )
            self._running[name].apply(document)
            return {**document, "status": self._running[name].build_status()}
        return document

    async def adopt_foreign_fields(self, there: Mapping[str, Any]) -> bool:
        return False  # nothing else writes children here

    async def check_owner(self, obj: Object) -> Mapping[str, Any] | None:
        there = self._children.get((obj["kind"], _key_of(obj)))
        if there is not None:
            refuse_foreign(there, obj)
        return there

    async def remove_child(self, like: Object) -> bool:
        return self._children.pop((like["kind"], _key_of(like)), None) is not None

    async def annotate_pod(self, key: Key, pod: str, annotations: Mapping[str, str | None]) -> None:
        if _child_key(key) in self._running:
            self._running[_child_key(key)].annotate_pod(pod, annotations)

    async def write_status(self, key: Key, status: Object) -> None:
        resource = self._resources.get(key)
        if resource is not None:
            self._resources[key] = self._add_metadata({**resource, "status": status})

    async def amend_status(self, key: Key, fields: Object) -> bool:
        resource = self._resources.get(key)
        if resource is None:
            return False
        await self.write_status(key, {**resource.get("status", {}), **fields})
        return True

    async def list_events(self, namespace: str, kind: str, name: str) -> Sequence[Mapping[str, Any]]:
        return []  # a process here says all in its pod's status

    async def record_event(self, key: Key, event: Event) -> None:
        self.events.setdefault(key, deque(maxlen=KEPT_EVENTS)).append((_format_now(), event))
        self.num_events[key] += 1

    def _find_secret(self, key: Key) -> Mapping[str, str] | None:
        child = self._children.get(("Secret", key))
        if child is None:
            return self._secrets.get(key)
        return {name: base64.b64decode(value).decode() for name, value in child["data"].items()}

    def _drop_child(self, kind: str, name: Key) -> None:
        """Forget a child; a Deployment's pods end in their own time."""
        if self._children.pop((kind, name), None) is None or kind != "Deployment":
            return
        leaving = self._running.pop(name)
        others = self._leaving.setdefault(name, {})
        others[leaving] = supervise_task(leaving.delete, "delete-deployment", again=False)
        others[leaving].add_done_callback(lambda _: others.pop(leaving))

    def _add_metadata(self, document: Object) -> Object:
        self._version += 1
        return {**document, "metadata": {**document["metadata"], "resourceVersion": str(self._version)}}


class _Owner(NamedTuple):
    key: Key
    uid: str


def _find_owner(child: Mapping[str, Any]) -> _Owner:
    """The LLMDeployment that controls it."""
    metadata = child["metadata"]
    reference = next(reference for reference in metadata["ownerReferences"] if reference["controller"])
    return _Owner(Key(metadata["namespace"], reference["name"]), reference["uid"])


def _child_key(key: Key) -> Key:
    """Key of the Deployment of an LLMDeployment, and of most of its other children."""
    return Key(key.namespace, child_name(key.name))


def _content_of(child: Mapping[str, Any]) -> Any:
    return child.get("spec", child.get("data"))


def _key_of(child: Mapping[str, Any]) -> Key:
    return Key(child["metadata"]["namespace"], child["metadata"]["name"])


def _format_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
