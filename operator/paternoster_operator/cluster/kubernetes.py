"""A Kubernetes API server as a cluster: reads from a watch's cache, writes by server-side apply.

Reference: the Kubernetes API's ``application/apply-patch+yaml``; one field manager owns what the operator sets.
"""

import asyncio
import base64
import logging
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import quote

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient
from kubernetes.aio.dynamic import DynamicClient

from paternoster_contract import labels
from paternoster_operator.cluster.api_requests import ApiRequests, RequestTraffic
from paternoster_operator.cluster.buckets import ONLY_SHARD, Shard, add_bucket, find_bucket, has_right_bucket
from paternoster_operator.cluster.foreign_fields import adopt_foreign_fields
from paternoster_operator.cluster.ownership import controlled_by, find_controller, own_pods, refuse_foreign
from paternoster_operator.cluster.port import (
    LONGEST_NOTE,
    ClusterError,
    Event,
    FleetHandedOver,
    Key,
    NamespaceEnding,
    Object,
    TargetObjects,
    WatchFault,
)
from paternoster_operator.cluster.selector import write_selector
from paternoster_operator.cluster.watch_states import WatchStates

log = logging.getLogger(__name__)

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
STATUS = f"{labels.KIND}/status"
"""Kind of a status, for the count of writes."""
SHARD_TOKEN = "shardToken"
"""Field of a status: the token of the shard that reconciles the fleet."""
LOAD_FIELDS = {"load", "replicaModel", "economics"}
"""Fields of a status that follow the load."""
EVENTS_AT_ONCE = 25
"""Events of one fleet and type that are recorded before the rest is counted."""
EVENT_SECONDS = 60.0
"""After which it may have one more."""
_MAX_EVENTS = 100
"""About one object; a kubelet records each kind once and counts."""
_LONGEST_EVENTS = 2**20
"""Bytes of them: one that somebody made by an older API has up to 1.5 MiB."""

_PLURALS = {
    ("v1", "Service"): "services",
    ("v1", "Pod"): "pods",
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networkpolicies",
    ("v1", "Secret"): "secrets",
    ("v1", "ConfigMap"): "configmaps",
    ("coordination.k8s.io/v1", "Lease"): "leases",
    (labels.API_VERSION, labels.KIND): labels.PLURAL,
}
"""The kinds that are read or written: a list, so that nothing has to be discovered."""
_VERSIONS = {kind: version for version, kind in _PLURALS}


Seen = Mapping[tuple[str, str], Collection[Mapping[str, Any]]]
"""Objects by namespace and name of the LLMDeployment that their labels name."""


class Cache(Protocol):
    """What the watches saw last."""

    @property
    def resources(self) -> Seen: ...

    @property
    def children(self) -> Mapping[str, Seen]:
        """Children by kind."""
        ...

    @property
    def replica_sets(self) -> Seen: ...

    @property
    def pods(self) -> Seen: ...


class OwnedFleets(Protocol):
    """Fleets that this process may change."""

    def owns(self, key: Key) -> bool: ...

    def find_token(self, key: Key) -> int | None:
        """Token that the fleet's status is to have; None for none."""
        ...


@dataclass(slots=True)
class _EventRate:
    """How many events of one fleet and type may be recorded at ``at``, and how many were not since the last one."""

    at: float
    room: float = EVENTS_AT_ONCE
    left_out: int = 0


class KubernetesCluster:
    """Implements :class:`Cluster`. Open it before the first write."""

    ownership: OwnedFleets | None = None
    """None where no other operator can be there."""

    def __init__(
        self,
        cache: Cache,
        watches: WatchStates | None = None,
        traffic: RequestTraffic | None = None,
        shard: Shard = ONLY_SHARD,
    ) -> None:
        """``watches``: what came of those that fill ``cache``; ``traffic`` counts requests."""
        self._traffic = traffic
        self._shard = shard
        self._cache = cache
        self._watches = watches
        self._event_rates: dict[tuple[Key, str], _EventRate] = {}
        """In the order of their times."""
        self._api: ApiClient | None = None

    async def log_in(self) -> None:
        """Log in: the pod's service account, or the kubeconfig; raises :class:`ClusterError`."""
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
                config.load_incluster_config()
            else:
                await config.load_kube_config()
        except config.ConfigException as error:
            raise ClusterError(f"no way to reach an API server: {error}", retriable=False) from error
        self._api = ApiClient()
        self._requests = ApiRequests(DynamicClient(self._api), self._traffic)

    async def close(self) -> None:
        if self._api is not None:
            await self._api.close()

    @property
    def api(self) -> ApiClient:
        """The client, logged in."""
        assert self._api is not None
        return self._api

    def find_watch_fault(self, namespace: str) -> WatchFault | None:
        return None if self._watches is None else self._watches.find_fault(namespace)

    def list(self) -> Sequence[Key]:
        return [Key(*key) for key in self._cache.resources]

    def get(self, key: Key) -> Mapping[str, Any] | None:
        return next(iter(self._cache.resources.get(key, ())), None)

    def get_child(self, key: Key, kind: str) -> Mapping[str, Any] | None:
        resource = self.get(key)
        if resource is None:
            return None
        uid = resource["metadata"]["uid"]
        seen = self._cache.children.get(kind, {}).get(key, ())
        return next((each for each in seen if controlled_by(each, uid)), None)

    def list_pods(self, key: Key) -> Sequence[Mapping[str, Any]]:
        deployment = self.get_child(key, "Deployment")
        if deployment is None:
            return []
        return own_pods(self._cache.pods.get(key, ()), self._cache.replica_sets.get(key, ()), deployment)

    async def read_target(self, key: Key) -> TargetObjects | None:
        deployment = await self._requests.send("get", _object_path("apps/v1", "Deployment", *key), ignore=(404,))
        if deployment is None:
            return None
        # Version 0: as the API server's own cache has them, so that etcd is not asked every few seconds.
        query = f"?labelSelector={quote(write_selector(deployment['spec']['selector']))}&resourceVersion=0"
        pods, replica_sets = await asyncio.gather(
            self._requests.send("get", f"/api/v1/namespaces/{key.namespace}/pods{query}"),
            self._requests.send("get", f"/apis/apps/v1/namespaces/{key.namespace}/replicasets{query}"),
        )
        assert pods is not None
        assert replica_sets is not None
        return TargetObjects(deployment, own_pods(pods["items"], replica_sets["items"], deployment))

    async def read_secret(self, key: Key) -> Mapping[str, str] | None:
        found = await self._requests.send("get", _object_path("v1", "Secret", *key), ignore=(404,))
        if found is None:
            return None
        return {name: _decode_text(value) for name, value in (found.get("data") or {}).items()}

    async def create_secret(self, key: Key, data: Mapping[str, str]) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": key.name, "namespace": key.namespace, "labels": {labels.MANAGED_BY: labels.MANAGER}},
            "data": {name: base64.b64encode(value.encode()).decode() for name, value in data.items()},
        }
        await self._requests.send("post", f"/api/v1/namespaces/{key.namespace}/secrets", body, ignore=(409,))

    async def read_secret_field(self, key: Key, name: str) -> bytes | None:
        """One field of a Secret; None where it or the Secret is not there."""
        found = await self._requests.send("get", _object_path("v1", "Secret", *key), ignore=(404,))
        value = None if found is None else (found.get("data") or {}).get(name)
        return None if value is None else base64.b64decode(value)

    async def read_config_map(self, key: Key) -> tuple[Mapping[str, str], str] | None:
        """The fields of a ConfigMap and its version; None where there is none."""
        found = await self._requests.send("get", _object_path("v1", "ConfigMap", *key), ignore=(404,))
        return None if found is None else (found.get("data") or {}, found["metadata"]["resourceVersion"])

    async def write_config_map(self, key: Key, data: Mapping[str, str], version: str | None) -> str | None:
        """Replace a ConfigMap that has ``version``, or make one (None); None where that is not what is there."""
        metadata = {"name": key.name, "namespace": key.namespace, "labels": {labels.MANAGED_BY: labels.MANAGER}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        path = _object_path("v1", "ConfigMap", *key)
        if version is None:
            written = await self._requests.send("post", path.rpartition("/")[0], body, ignore=(409,))
        else:
            metadata["resourceVersion"] = version
            written = await self._requests.send("put", path, body, ignore=(409,))
        return None if written is None else str(written["metadata"]["resourceVersion"])

    async def write_secret(self, key: Key, name: str, value: bytes) -> None:
        """Set one field of a Secret, which is made if it is not there; raises :class:`ClusterError`."""
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "data": {name: base64.b64encode(value).decode()},
        }
        await self._requests.send(
            "patch", _object_path("v1", "Secret", *key), body,
            content_type=_APPLY, field_manager=labels.MANAGER, force_conflicts=True,
        )  # fmt: skip

    async def apply(self, obj: Object) -> Mapping[str, Any] | None:
        there = await self.check_owner(obj)
        key = _fleet_of(obj)
        self._check_ownership(key)
        obj = {**add_bucket(key, obj, there, self._shard)}
        metadata = obj["metadata"]
        path = _object_path(obj["apiVersion"], obj["kind"], metadata["namespace"], metadata["name"])
        if there is not None:
            # As a precondition: were another of that name there by now, the API server would refuse.
            obj = {**obj, "metadata": {**metadata, "uid": there["metadata"]["uid"]}}
        return await self._requests.send(
            "patch", path, obj, content_type=_APPLY, field_manager=labels.MANAGER, force_conflicts=True
        )

    async def adopt_foreign_fields(self, there: Mapping[str, Any]) -> bool:
        self._check_ownership(_fleet_of(there))
        metadata = there["metadata"]
        path = _object_path(there["apiVersion"], there["kind"], metadata["namespace"], metadata["name"])
        # The version is a precondition.
        adopted = {
            "resourceVersion": metadata["resourceVersion"],
            "managedFields": adopt_foreign_fields(metadata["managedFields"]),
        }
        return (
            await self._requests.send("patch", path, {"metadata": adopted}, ignore=(404, 409), content_type=_MERGE)
            is not None
        )

    async def check_owner(self, obj: Object) -> Mapping[str, Any] | None:
        there = self._find_watched(obj) or await self.read_object(obj)
        if there is not None:
            refuse_foreign(there, obj)
        return there

    async def read_object(self, like: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The object of that kind and name as it is now, or None."""
        metadata = like["metadata"]
        path = _object_path(like["apiVersion"], like["kind"], metadata["namespace"], metadata["name"])
        return await self._requests.send("get", path, ignore=(404,))

    async def list_labelled(self, api_version: str, kind: str, key: Key) -> Sequence[Mapping[str, Any]]:
        """The objects whose labels name the LLMDeployment, as they are now."""
        query = f"?labelSelector={quote(f'{labels.INSTANCE}={key.name}')}"
        path = _object_path(api_version, kind, key.namespace, "").rstrip("/") + query
        found = await self._requests.send("get", path)
        # Items of a list have no kind of their own.
        return [] if found is None else [{**item, "apiVersion": api_version, "kind": kind} for item in found["items"]]

    async def remove_child(self, like: Object) -> bool:
        metadata = like["metadata"]
        path = _object_path(like["apiVersion"], like["kind"], metadata["namespace"], metadata["name"])
        there = await self._requests.send("get", path, ignore=(404,))
        owner = find_controller(like)
        if there is None or owner is None or not controlled_by(there, owner["uid"]):
            return False
        self._check_ownership(_fleet_of(like))
        # As a precondition: another of that name stays.
        await self._requests.send("delete", path, {"preconditions": {"uid": there["metadata"]["uid"]}}, ignore=(404,))
        return True

    def _find_watched(self, obj: Object) -> Mapping[str, Any] | None:
        """The child as a watch saw it last."""
        metadata = obj["metadata"]
        seen = self.get_child(_fleet_of(obj), obj["kind"])
        return seen if seen is not None and seen["metadata"]["name"] == metadata["name"] else None

    async def annotate_pod(self, key: Key, pod: str, annotations: Mapping[str, str | None]) -> None:
        self._check_ownership(key)
        body = {"metadata": {"annotations": dict(annotations)}}
        path = f"/api/v1/namespaces/{key.namespace}/pods/{pod}"
        await self._requests.send("patch", path, body, ignore=(404,), content_type=_MERGE)

    async def write_status(self, key: Key, status: Object) -> None:
        self._check_ownership(key)
        token = None if self.ownership is None else self.ownership.find_token(key)
        if token is not None:  # what the fleet's status had may be from before this operator's time
            status = {**status, SHARD_TOKEN: token}
        self._count_write(STATUS, name_change((self.get(key) or {}).get("status", {}), status))
        # 404: it was deleted while it was looked at
        await self._apply_status({"name": key.name, "namespace": key.namespace}, status, ignore=(404,))

    async def amend_status(self, key: Key, fields: Object) -> bool:
        resource = self.get(key)
        if resource is None:
            return False
        self._check_ownership(key)
        # As a precondition: of several that write at once, one does.
        metadata = {name: resource["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")}
        self._count_write(STATUS, "Ownership")
        # An apply takes away what it does not name, so the rest of the status is in it, too.
        status = {**resource.get("status", {}), **fields}
        return await self._apply_status(metadata, status, ignore=(404, 409)) is not None

    async def _apply_status(
        self, metadata: Object, status: Object, *, ignore: tuple[int, ...]
    ) -> Mapping[str, Any] | None:
        body = {"apiVersion": labels.API_VERSION, "kind": labels.KIND, "metadata": metadata, "status": status}
        path = _object_path(labels.API_VERSION, labels.KIND, metadata["namespace"], metadata["name"]) + "/status"
        return await self._requests.send(
            "patch", path, body, ignore=ignore, content_type=_APPLY, field_manager=labels.MANAGER, force_conflicts=True
        )

    def _check_ownership(self, key: Key) -> None:
        if self.ownership is not None and not self.ownership.owns(key):
            raise FleetHandedOver(key)

    async def read_lease(self, key: Key) -> tuple[str, str]:
        """Holder and time of the last renewal of a Lease, both empty where there is none."""
        found = await self._requests.send("get", _object_path("coordination.k8s.io/v1", "Lease", *key), ignore=(404,))
        spec = {} if found is None else found.get("spec") or {}
        return spec.get("holderIdentity") or "", spec.get("renewTime") or ""

    def list_mislabelled(self, key: Key) -> Sequence[tuple[str, str]]:
        """Kind and name of each object of the fleet whose label does not name its bucket, the fleet itself last."""
        kinds: Mapping[str, Seen] = {
            "Pod": self._cache.pods, "ReplicaSet": self._cache.replica_sets, **self._cache.children,
            labels.KIND: self._cache.resources,
        }  # fmt: skip
        return [
            (kind, each["metadata"]["name"])
            for kind, seen in kinds.items()
            for each in seen.get(key, ())
            if not has_right_bucket(key, each["metadata"])
        ]

    def list_in_buckets(self, buckets: Collection[int]) -> Sequence[Key]:
        """Fleets of which there is any object, by the objects' labels and owners."""
        kinds = (self._cache.resources, self._cache.pods, self._cache.replica_sets, *self._cache.children.values())
        keys = {Key(*key) for seen in kinds for key in seen}
        return sorted(key for key in keys if find_bucket(key) in buckets)

    async def label_object(self, key: Key, kind: str, name: str) -> None:
        """Set the label of one object of the fleet; its shard's watches have it then."""
        body = {"metadata": {"labels": {labels.BUCKET: str(find_bucket(key))}}}
        path = _object_path(_VERSIONS[kind], kind, key.namespace, name)
        self._count_write(kind, "Bucket")
        await self._requests.send("patch", path, body, ignore=(404,), content_type=_MERGE)

    async def read_fleet(self, key: Key) -> Mapping[str, Any] | None:
        """The LLMDeployment as it is now, also where no watch of this shard has it; None where there is none."""
        path = _object_path(labels.API_VERSION, labels.KIND, key.namespace, "").rstrip("/")
        found = await self._requests.send("get", f"{path}?fieldSelector={quote(f'metadata.name={key.name}')}")
        items = () if found is None else found["items"]
        return next((each for each in items if each["metadata"]["name"] == key.name), None)

    async def has_children(self, key: Key) -> bool:
        """Whether the cache has the fleet's Deployment, and its pods, if the API server has: they come one by one."""
        resource, deployment = self.get(key), self.get_child(key, "Deployment")
        if resource is None:
            return True
        if deployment is None:
            there = await self.list_labelled("apps/v1", "Deployment", key)
            return not any(controlled_by(each, resource["metadata"]["uid"]) for each in there)
        pods = self.list_pods(key)
        if len(pods) >= deployment.get("status", {}).get("replicas", 0):
            return True
        seen = {pod["metadata"]["uid"] for pod in pods}
        replica_sets = await self.list_labelled("apps/v1", "ReplicaSet", key)
        there = own_pods(await self.list_labelled("v1", "Pod", key), replica_sets, deployment)
        return {pod["metadata"]["uid"] for pod in there} <= seen

    def _count_write(self, kind: str, reason: str) -> None:
        if self._traffic is not None:
            self._traffic.count_write(kind, reason)

    async def list_events(self, namespace: str, kind: str, name: str) -> Sequence[Mapping[str, Any]]:
        selector = quote(f"regarding.kind={kind},regarding.name={name}")
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldSelector={selector}&limit={_MAX_EVENTS}"
        answer = await self._requests.send("get", path, longest=_LONGEST_EVENTS)
        found: Sequence[Mapping[str, Any]] = () if answer is None else answer["items"]
        return found

    async def record_event(self, key: Key, event: Event) -> None:
        resource, note = self.get(key), self._limit_events(key, event)
        if resource is None or note is None:
            return
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{key.name}-", "namespace": key.namespace},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": event.type,
            "reason": event.reason,
            "action": event.reason,
            "note": note,
            "reportingController": f"{labels.GROUP}/operator",
            "reportingInstance": socket.gethostname(),
            "regarding": {
                "apiVersion": labels.API_VERSION,
                "kind": labels.KIND,
                "name": key.name,
                "namespace": key.namespace,
                "uid": resource["metadata"]["uid"],
            },
        }
        try:
            self._check_ownership(key)
            await self._requests.send("post", f"/apis/events.k8s.io/v1/namespaces/{key.namespace}/events", body)
            self._count_write("Event", event.reason)
        except (NamespaceEnding, FleetHandedOver) as ending:
            log.debug("%s: the event %s is not recorded: %s", key, event.reason, ending)
        except ClusterError as error:
            log.warning("%s: the event %s is not recorded: %s", key, event.reason, error)

    def _limit_events(self, key: Key, event: Event) -> str | None:
        """The note of the event; None where the fleet has had too many, as the API server keeps each for an hour."""
        now, rates = time.monotonic(), self._event_rates
        while rates and now - next(iter(rates.values())).at >= EVENTS_AT_ONCE * EVENT_SECONDS:
            del rates[next(iter(rates))]
        rate = rates.pop((key, event.type), None) or _EventRate(now)
        rate.room, rate.at = min(EVENTS_AT_ONCE, rate.room + (now - rate.at) / EVENT_SECONDS), now
        rates[key, event.type] = rate
        if rate.room < 1:
            rate.left_out += 1
            log.info("%s: %s: %s", key, event.reason, event.message)
            return None
        end = f" ({rate.left_out} events before this one were left out)" if rate.left_out else ""
        rate.room, rate.left_out = rate.room - 1, 0
        return event.message[: LONGEST_NOTE - len(end)] + end


def _fleet_of(child: Mapping[str, Any]) -> Key:
    return Key(child["metadata"]["namespace"], child["metadata"]["labels"][labels.INSTANCE])


def name_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The kind of a change of a status, in a word: conditions before numbers of replicas, and load last."""
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    if "conditions" in changed:
        return "Conditions"
    return "Fields" if changed - LOAD_FIELDS else "Load"


def _object_path(api_version: str, kind: str, namespace: str, name: str) -> str:
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    return f"{root}/namespaces/{namespace}/{_PLURALS[api_version, kind]}/{name}"


def _decode_text(encoded: str) -> str:
    """A value of a Secret; bytes that are no text are no key either."""
    return base64.b64decode(encoded).decode(errors="replace")
