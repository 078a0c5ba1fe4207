"""What a connection leaves once it is closed: nothing that only a garbage collection finds, which stops all streams."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, serving_table, until

from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.proxy.answer import Answer
from paternoster_gateway.proxy.forwarded_answer import COMMENT
from paternoster_http.open_requests import OpenRequest
from paternoster_http.protocol import LimitedHttpProtocol

KINDS = (LimitedHttpProtocol, OpenRequest, Answer, aiohttp.ClientResponse, GatewayError)
BODY = {"model": "m", "messages": [], "stream": True}


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    yield
    if enabled:
        gc.enable()


def count_objects() -> int:
    return sum(isinstance(each, KINDS) for each in gc.get_objects())


async def stream_on(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    while True:
        await response.write(b"data: 1\n\n")
        await asyncio.sleep(0.01)


async def stream_whole(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"data: 1\n\ndata: [DONE]\n\n")
    return response


async def answer_as_no_engine(_: FakeEngine, __: web.Request) -> web.StreamResponse:
    return web.Response(status=302)


async def break_off(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    response = await stream_whole(_, request)
    assert request.transport is not None
    request.transport.abort()
    return response


async def read_a_frame(door: Door, *, whole: bool) -> None:
    """On a connection of its own, which is closed afterwards."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client,
        client.post(door.url + "/v1/chat/completions", json=BODY) as response,
    ):
        assert response.status == 200, await response.text()
        await response.content.readuntil(b"\n\n")
        if whole:
            await response.read()


@pytest.mark.parametrize(("behave", "whole"), [(stream_on, False), (stream_whole, True), (break_off, True)])
async def test_a_closed_connection_leaves_no_cycle(
    door: Door, start: Callable[[str, Behave], Awaitable[FakeEngine]], behave: Behave, whole: bool
) -> None:
    door.publish(await start("a", behave))
    await read_table(door)
    await leave_nothing(lambda: read_a_frame(door, whole=whole))


@pytest.mark.parametrize(
    ("refused", "behave"),
    [
        ({"model": "other"}, stream_whole),
        ({"model": "m", "messages": "a" * 100_000}, answer_as_no_engine),
    ],
)
async def test_a_refused_request_leaves_no_cycle(
    door: Door, start: Callable[[str, Behave], Awaitable[FakeEngine]], refused: dict[str, object], behave: Behave
) -> None:
    """With it would stay the body, which no collection of Python's sees the size of."""
    door.publish(await start("a", behave), hold=False)
    await read_table(door)

    async def send_refused() -> None:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client,
            client.post(door.url + "/v1/chat/completions", json=refused) as response,
        ):
            assert response.status >= 400
            await response.read()

    await leave_nothing(send_refused)


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_held_stream_with_comments_leaves_no_cycle(table: Path, leaves: bool) -> None:
    async with serving_table(table, comment_seconds=0.02) as url:
        door = Door(url, table)
        door.publish(hold_timeout_seconds=1)
        await read_table(door)

        async def read_comments() -> None:
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client,
                client.post(door.url + "/v1/chat/completions", json=BODY) as response,
            ):
                assert await response.content.readuntil(b"\n\n") == COMMENT
                if not leaves:
                    assert b'"ServiceUnavailableError"' in await response.read()

        await leave_nothing(read_comments)


async def read_table(door: Door) -> None:
    """Wait until the gateway has the model."""
    async with aiohttp.ClientSession() as client:

        async def list_models() -> str:
            async with client.get(f"{door.url}/v1/models") as response:
                return await response.text()

        await until(list_models, lambda text: '"m"' in text)


async def leave_nothing(exchange: Callable[[], Awaitable[None]]) -> None:
    async def rest() -> int:
        await asyncio.sleep(0)
        return count_objects()

    await exchange()  # what the first one loads is of no other
    await asyncio.sleep(0.1)
    gc.collect()
    before = count_objects()
    for _ in range(5):
        await exchange()
    assert await until(rest, lambda count: count <= before) <= before
