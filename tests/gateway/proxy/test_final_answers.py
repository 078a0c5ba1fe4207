"""An engine that says that trying again is of no use is believed."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door

from paternoster_e2e.fakes.engine import Behave, FakeEngine


def late(should_retry: str) -> Behave:
    async def behave(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {}}, status=504, headers={"x-should-retry": should_retry})

    return behave


@pytest.mark.parametrize(("should_retry", "replicas"), [("false", 1), ("true", 2)])
async def test_a_request_past_its_deadline_is_retried_only_if_the_engine_allows_it(
    client: aiohttp.ClientSession, door: Door, start, should_retry: str, replicas: int
) -> None:
    engines = [await start(name, late(should_retry)) for name in "ab"]
    door.publish(*engines, hold_timeout_seconds=0.5)
    await wait_for_table(client, door)
    async with client.post(door.url + "/v1/chat/completions", json={"model": "m", "messages": []}) as response:
        assert response.status in (503, 504)
    assert sum(len(engine.bodies) > 0 for engine in engines) == replicas


async def wait_for_table(client: aiohttp.ClientSession, door: Door) -> None:
    """Wait until the gateway has read the table."""
    while True:
        async with client.get(f"{door.url}/v1/models") as response:
            if (await response.json())["data"]:
                return
        await asyncio.sleep(0.05)
