"""What the gateway's objects of an open stream take."""

import gc
import sys
from collections.abc import Awaitable, Callable

import aiohttp
from tests.gateway.fakes import Door
from tests.gateway.process.test_closed_connections import BODY, read_table, stream_on

from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_http.protocol import LimitedHttpProtocol

OWN_KEYS = 1_000
"""Bytes: CPython's dictionary of an instance with more than 30 attributes is larger, as it does not share its keys."""


async def test_objects_of_a_stream_are_small(door: Door, start: Callable[[str, Behave], Awaitable[FakeEngine]]) -> None:
    engine = await start("a", stream_on)
    door.publish(engine)
    await read_table(door)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client,
        client.post(door.url + "/v1/chat/completions", json=BODY) as response,
    ):
        await response.content.readuntil(b"\n\n")
        connections = [each for each in gc.get_objects() if isinstance(each, LimitedHttpProtocol) and each._open]
        answers = [
            each
            for each in gc.get_objects()
            if isinstance(each, aiohttp.ClientResponse) and str(each.url).startswith(engine.url + "/v1/chat")
        ]
        assert len(connections) == len(answers) == 1
        assert sys.getsizeof(vars(connections[0])) < OWN_KEYS, sorted(vars(connections[0]))
        assert "_content_type" not in vars(answers[0]), "aiohttp's parts of it stay as long as the stream is open"
