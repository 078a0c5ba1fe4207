"""A reconciler over a cluster in memory and an engine on a real socket."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paternoster_e2e.fakes.engine import Answer, FakeEngine
from paternoster_operator.cluster.port import Event, Key, Object, TargetObjects, WatchFault
from paternoster_operator.keys.fleet_keys import FleetKeys
from paternoster_operator.keys.key_secrets import KeySecrets
from paternoster_operator.metrics import OperatorMetrics
from paternoster_operator.names.directory import Directory
from paternoster_operator.reconcile import Reconciler
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings

KEY = Key("lifts", "ride")
RECORDED = Path(__file__).parents[1] / "engines/recorded"
LIMITS, METRICS = "/paternoster/limits", "/metrics"
VLLM_LIMITS, VLLM_METRICS = ((RECORDED / f"vllm-0.32-{name}").read_bytes() for name in ("limits.json", "metrics.txt"))
VLLM: dict[str, Answer] = {LIMITS: VLLM_LIMITS, METRICS: VLLM_METRICS}
"""Answers of a real vLLM with the plugin."""


class FakeCluster:
    """Records what is written, and shows what a test sets."""

    def __init__(self) -> None:
        self.resource: Object | None = None
        self.children: dict[str, Object] = {}
        self.shown_pods: list[Object] = []
        self.targets: dict[Key, TargetObjects] = {}
        """Deployments that no fleet made."""
        self.applies: list[str] = []
        self.set_by_others: dict[str, Object] = {}
        """Managed fields (FieldsV1) of another manager, by kind; an adoption removes them."""
        self.adoptions: list[str] = []
        self.statuses: list[Object] = []
        self.events: list[Event] = []
        self.annotations: dict[str, dict[str, str]] = {}
        self.secrets: dict[Key, dict[str, str]] = {}
        self.secrets_read: list[Key] = []
        self.about: dict[tuple[str, str], list[Object]] = {}
        """Events about other objects, by kind and name."""
        self.asked_about: list[tuple[str, str]] = []
        self.events_refused: Exception | None = None
        self.refusals: dict[str, Exception] = {}
        """What an apply meets, by kind."""
        self.unreadable: Exception | None = None
        """What reading a Secret meets."""
        self.watch_fault: WatchFault | None = None

    def find_watch_fault(self, namespace: str) -> WatchFault | None:
        return self.watch_fault

    def list(self) -> Sequence[Key]:
        return [KEY] if self.resource is not None else []

    def get(self, key: Key) -> Mapping[str, Any] | None:
        return self.resource if key == KEY else None

    def get_child(self, key: Key, kind: str) -> Mapping[str, Any] | None:
        return None if kind == "Secret" else self.children.get(kind)

    def list_pods(self, key: Key) -> Sequence[Mapping[str, Any]]:
        return self.shown_pods

    async def read_target(self, key: Key) -> TargetObjects | None:
        return self.targets.get(key)

    async def read_secret(self, key: Key) -> Mapping[str, str] | None:
        self.secrets_read.append(key)
        if self.unreadable is not None:
            raise self.unreadable
        return self.secrets.get(key)

    async def create_secret(self, key: Key, data: Mapping[str, str]) -> None:
        self.secrets.setdefault(key, dict(data))

    async def apply(self, obj: Object) -> Object:
        self.applies.append(obj["kind"])
        if obj["kind"] in self.refusals:
            raise self.refusals[obj["kind"]]
        before = self.children.get(obj["kind"], {"metadata": {"generation": 0}, "spec": None})
        generation = before["metadata"]["generation"] + (before.get("spec") != obj.get("spec"))
        metadata = {**obj["metadata"], "generation": generation}
        if obj["kind"] in self.set_by_others:
            fields = self.set_by_others[obj["kind"]]
            metadata["managedFields"] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]
        self.children[obj["kind"]] = {**before, **obj, "metadata": metadata}
        return self.children[obj["kind"]]

    def edit_child(self, kind: str, fields: Object) -> None:
        """Edit fields that the operator does not set, like ``kubectl edit``."""
        self.set_by_others[kind] = fields
        there = self.children[kind]
        managed = [{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]
        generation = there["metadata"]["generation"] + 1
        self.children[kind] = {
            **there, "metadata": {**there["metadata"], "generation": generation, "managedFields": managed}
        }  # fmt: skip

    async def adopt_foreign_fields(self, there: Object) -> bool:
        self.adoptions.append(there["kind"])
        return self.set_by_others.pop(there["kind"], None) is not None

    async def check_owner(self, obj: Object) -> Object | None:
        if obj["kind"] in self.refusals:
            raise self.refusals[obj["kind"]]
        return self.children.get(obj["kind"])

    async def remove_child(self, like: Object) -> bool:
        if like["kind"] in self.refusals:
            raise self.refusals[like["kind"]]
        return self.children.pop(like["kind"], None) is not None

    async def annotate_pod(self, key: Key, pod: str, annotations: Mapping[str, str | None]) -> None:
        merged = {**self.annotations.get(pod, {}), **annotations}
        self.annotations[pod] = {name: value for name, value in merged.items() if value is not None}
        self.shown_pods = [
            {**shown, "metadata": {**shown["metadata"], "annotations": self.annotations[pod]}}
            if shown["metadata"]["name"] == pod
            else shown
            for shown in self.shown_pods
        ]

    async def write_status(self, key: Key, status: Object) -> None:
        assert self.resource is not None
        self.statuses.append(status)
        self.resource = {**self.resource, "status": status}

    async def amend_status(self, key: Key, fields: Object) -> bool:
        assert self.resource is not None
        await self.write_status(key, {**self.resource.get("status", {}), **fields})
        return True

    async def list_events(self, namespace: str, kind: str, name: str) -> Sequence[Object]:
        self.asked_about.append((kind, name))
        if self.events_refused is not None:
            raise self.events_refused
        return self.about.get((kind, name), [])

    async def record_event(self, key: Key, event: Event) -> None:
        self.events.append(event)

    @property
    def replicas(self) -> int:
        replicas: int = self.children["Deployment"]["spec"]["replicas"]
        return replicas

    def condition(self, kind: str) -> Mapping[str, Any]:
        return next((c for c in self.statuses[-1]["conditions"] if c["type"] == kind), {})


class PodEngine(FakeEngine):
    """An engine with a pod."""

    @property
    def caps(self) -> list[int]:
        """Live caps that it was sent."""
        return [limits["live_cap"] for limits in self.patches]

    @property
    def port(self) -> int:
        """Port that it listens on; 0 while it does not."""
        return int(self.url.rpartition(":")[2] or 0)

    def pod(self, name: str, *, ready: bool = True, **metadata: Any) -> Object:
        return {
            "metadata": {"name": name, **metadata},
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "ports": [{"name": name, "containerPort": self.port} for name in ("http", "admin")],
                    }
                ]
            },
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.1",
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }


class World:
    """A reconciler, its cluster, one engine and a clock that is turned by hand."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.engine = PodEngine("first")
        self.now = 1000.0
        self.scraper = Scraper(timeout_seconds=2, gateway_url=None)
        self.restart_operator()

    def restart_operator(self) -> None:
        self.metrics = OperatorMetrics()
        self.reconciler = self.new_reconciler(Settings())

    def new_reconciler(self, settings: Settings, **clocks: Any) -> Reconciler:
        clock = lambda: self.now  # noqa: E731 - read at each call
        return Reconciler(
            self.cluster,
            self.scraper,
            settings,
            self.metrics,
            Directory(self.cluster, settings.names, clock=clock),
            FleetKeys(KeySecrets(self.cluster, clock), settings),
            clock=clock,
            **clocks,
        )

    async def reconcile(self, after: float = 5.0) -> float | None:
        """One reconcile of the resource, ``after`` seconds after the last one; returns when the next is due."""
        self.now += after
        return await self.reconciler.reconcile(KEY)
