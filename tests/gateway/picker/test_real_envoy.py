"""A picker beside a real Envoy: requests, streams, failover, long bodies, and pickers that end under load."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from tests.gateway.fakes import route, until
from tests.gateway.picker.envoy_proxy import Envoy, closed_port, run_envoy

from paternoster_contract.access.keys import GATEWAY_TO_ENGINE, derive_key
from paternoster_contract.routing import ModelRoute, Replica
from paternoster_e2e.fakes.engine import FakeEngine

pytestmark = pytest.mark.slow

PIECES = 12
"""Pieces of a stream, a moment between two."""
Start = Callable[..., Awaitable[Envoy]]


async def answer(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
    """A chat, or a stream of it, that states who answers and the digest of what it was sent."""
    body = engine.bodies[-1]
    if json.loads(body).get("stream") is not True:
        return web.json_response({"from": engine.name, "sha256": hashlib.sha256(body).hexdigest()})
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for number in range(PIECES):
        await response.write(b'data: {"from": "%s", "number": %d}\n\n' % (engine.name.encode(), number))
        await asyncio.sleep(0.1)
    await response.write(b"data: [DONE]\n\n")
    return response


async def reset(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def before(
    folder: Path, engines: list[FakeEngine], row: ModelRoute | None = None, extra: tuple[str, ...] = (), **config: Any
) -> AsyncIterator[Envoy]:
    """Envoy before ``engines``, and before URLs of ``extra``, at which none has to be."""
    row = row or route(*engines)
    manager = run_envoy(folder, row, [*(each.url for each in engines), *extra], **config)
    envoy = await asyncio.to_thread(manager.__enter__)
    try:
        yield envoy
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


@pytest.fixture
async def engines() -> AsyncIterator[list[FakeEngine]]:
    async with FakeEngine("a", answer).listening() as first, FakeEngine("b", answer).listening() as second:
        yield [first, second]


async def post(client: aiohttp.ClientSession, envoy: Envoy, **fields: Any) -> tuple[int, Any]:
    url = f"{envoy.url}/v1/chat/completions"
    async with client.post(url, json={"model": "m", "messages": [], **fields}) as response:
        return response.status, await response.json(content_type=None)


async def count_in_flight(client: aiohttp.ClientSession, envoy: Envoy) -> int:
    """Requests at replicas, as the picker reports them to the operator."""
    async with client.get(envoy.stats) as response:
        return int((await response.json())["models"]["m"]["in_flight"])


async def read_stream(client: aiohttp.ClientSession, envoy: Envoy) -> tuple[int, bool]:
    """Pieces of a stream, and whether it is whole."""
    text = b""
    with suppress(aiohttp.ClientError):
        body = {"model": "m", "messages": [], "stream": True}
        async with client.post(f"{envoy.url}/v1/chat/completions", json=body) as response:
            async for piece in response.content.iter_any():
                text += piece
    return text.count(b'"number"'), text.endswith(b"data: [DONE]\n\n")


async def test_chats_streams_and_models(
    tmp_path: Path, engines: list[FakeEngine], client: aiohttp.ClientSession
) -> None:
    async with before(tmp_path, engines) as envoy:
        answers = [await post(client, envoy) for _ in range(4)]
        assert [status for status, _ in answers] == [200] * 4
        assert {body["from"] for _, body in answers} == {"a", "b"}, "the least loaded take turns"
        key = derive_key("root", GATEWAY_TO_ENGINE, "")
        assert {each["Authorization"] for engine in engines for each in engine.headers} == {f"Bearer {key}"}
        streams = [asyncio.create_task(read_stream(client, envoy)) for _ in range(4)]
        await until(lambda: count_in_flight(client, envoy), lambda count: count == 4)
        assert await asyncio.gather(*streams) == [(PIECES, True)] * 4
        await until(lambda: count_in_flight(client, envoy), lambda count: count == 0)
        assert sorted(len(engine.bodies) for engine in engines) == [4, 4]
        async with openai.AsyncOpenAI(base_url=f"{envoy.url}/v1", api_key="none", max_retries=0) as api:
            assert [each.id async for each in api.models.list()] == ["m"]
            with pytest.raises(openai.NotFoundError, match="does not exist"):
                await api.chat.completions.create(model="other", messages=[{"role": "user", "content": ""}])
        async with client.get(f"{envoy.url}/stats") as response:
            assert response.status == 404, "nothing of an engine's but its API"


async def test_a_client_that_leaves_is_counted_no_longer(
    tmp_path: Path, engines: list[FakeEngine], client: aiohttp.ClientSession
) -> None:
    async with before(tmp_path, engines) as envoy:
        stream = asyncio.create_task(read_stream(client, envoy))
        await until(lambda: count_in_flight(client, envoy), lambda count: count == 1)
        stream.cancel()
        await until(lambda: count_in_flight(client, envoy), lambda count: count == 0)


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_the_next_of_the_list_gets_what_the_first_does_not_answer(
    tmp_path: Path, engines: list[FakeEngine], client: aiohttp.ClientSession, how: str
) -> None:
    """The dead one is the least loaded by its name, until its failures have ejected it."""
    async with FakeEngine("0", reset).listening() as dead:
        url = dead.url if how == "reset" else f"http://127.0.0.1:{closed_port()}"
        replicas = [Replica(name=each, url=each, ready=True) for each in (url, *(engine.url for engine in engines))]
        async with before(tmp_path, engines, ModelRoute(replicas=replicas), extra=(url,)) as envoy:
            answers = [await post(client, envoy) for _ in range(12)]
            assert [status for status, _ in answers] == [200] * 12
            assert {body["from"] for _, body in answers} == {"a", "b"}
            await until(lambda: count_in_flight(client, envoy), lambda count: count == 0)
        if how == "reset":
            assert 0 < len(dead.bodies) < 6, "it is ejected for a second by each failure"


async def test_shed_and_unserved_requests(
    tmp_path: Path, engines: list[FakeEngine], client: aiohttp.ClientSession
) -> None:
    async with before(tmp_path, engines, route(*engines, max_in_flight=1, max_held=0)) as envoy:
        streams = [asyncio.create_task(read_stream(client, envoy)) for _ in range(2)]
        await until(lambda: count_in_flight(client, envoy), lambda count: count == 2)
        url, body = f"{envoy.url}/v1/chat/completions", {"model": "m", "messages": []}
        async with client.post(url, json=body) as response:
            assert response.status == 429
            assert response.headers["x-llm-d-request-dropped-reason"] == "rejected-saturated"
            assert int(response.headers["retry-after"]) >= 1
            assert (await response.json())["error"]["type"] == "RateLimitError"
        assert await asyncio.gather(*streams) == [(PIECES, True)] * 2
        envoy.publish(m=route(*engines, ready=False, hold=False))

        async def read_status() -> tuple[int, str]:
            async with client.post(url, json=body) as response:
                return response.status, response.headers.get("x-llm-d-request-dropped-reason", "")

        assert await until(read_status, lambda seen: seen[0] != 200) == (503, "rejected-no-endpoints")
        envoy.publish(m=route(*engines, ready=False))
        held = asyncio.create_task(post(client, envoy))
        while await asyncio.wait({held}, timeout=1) != (set(), {held}):  # the picker reads the table a moment later
            held = asyncio.create_task(post(client, envoy))
        envoy.publish(m=route(*engines))
        assert (await held)[0] == 200


async def test_bodies_of_megabytes_come_whole(
    tmp_path: Path, engines: list[FakeEngine], client: aiohttp.ClientSession
) -> None:
    """Sizes about the bounds of a chunk, and of 1 to 2 MB; with a length, and in chunks of their own."""
    random = Random(3)
    sizes = [61_999, 62_000, 62_001, 65_536, 131_072, 1_000_000, 1_048_576, 2_000_000, random.randrange(2_000_000)]
    async with before(tmp_path, engines) as envoy:
        url = f"{envoy.url}/v1/chat/completions"

        async def post_body(body: bytes, chunked: bool) -> str:
            async def pieces() -> AsyncIterator[bytes]:
                at = 0
                while at < len(body):
                    size = random.randrange(1, 200_000)
                    yield body[at : at + size]
                    at += size

            headers = {"content-type": "application/json"}
            async with client.post(url, data=pieces() if chunked else body, headers=headers) as response:
                assert response.status == 200, await response.text()
                return str((await response.json())["sha256"])

        for size in sizes:
            start = b'{"model": "m", "messages": [], "user": "'
            body = start + random.randbytes(size).hex().encode()[: size - len(start) - 2] + b'"}'
            assert len(body) == size
            digest = hashlib.sha256(body).hexdigest()
            assert await asyncio.gather(*(post_body(body, chunked) for chunked in (False, True))) == [digest] * 2
        async with client.post(url, data=b"[" * (4 * 2**20 + 1)) as response:
            assert response.status == 413
        assert (await post(client, envoy))[0] == 200


async def test_answers_that_envoy_streams_to_the_picker_come_whole(
    tmp_path: Path, engines: list[FakeEngine], client: aiohttp.ClientSession
) -> None:
    """Gateways that stream answers in full duplex, too, are configured so."""
    async with before(tmp_path, engines, response_body_mode="FULL_DUPLEX_STREAMED") as envoy:
        assert await asyncio.gather(*(read_stream(client, envoy) for _ in range(4))) == [(PIECES, True)] * 4
        assert (await post(client, envoy))[0] == 200
        await until(lambda: count_in_flight(client, envoy), lambda count: count == 0)


@pytest.mark.parametrize("failure_mode_allow", [False, True])
@pytest.mark.parametrize("trailers", ["SEND", "SKIP"])
async def test_a_picker_that_is_killed_under_load(
    tmp_path: Path, engines: list[FakeEngine], client: aiohttp.ClientSession, failure_mode_allow: bool, trailers: str
) -> None:
    """Requests with a body are refused in either mode; answers go on where the picker does not follow their end."""
    config = {"failure_mode_allow": failure_mode_allow, "response_trailer_mode": trailers}
    async with before(tmp_path, engines, **config) as envoy:
        streams = [asyncio.create_task(read_stream(client, envoy)) for _ in range(6)]
        await until(lambda: at_engines(engines), lambda count: count == 6)
        await asyncio.sleep(0.3)
        os.kill(envoy.picker.pid, signal.SIGKILL)
        await asyncio.sleep(0.2)
        refused = await asyncio.gather(*(post(client, envoy) for _ in range(6)))
        assert [status for status, _ in refused] == [500] * 6
        async with client.get(f"{envoy.url}/v1/models") as response:
            # Without a body Envoy lets requests through, and without the gateway's key: the engine has no such path.
            assert response.status == (404 if failure_mode_allow else 500)
        whole = [is_whole for _, is_whole in await asyncio.gather(*streams)]
        assert whole == [trailers == "SKIP"] * 6
        await asyncio.to_thread(envoy.restart_picker)
        await until(lambda: post(client, envoy), lambda seen: seen[0] == 200)


async def at_engines(engines: list[FakeEngine]) -> int:
    return sum(len(engine.bodies) for engine in engines)


async def test_a_picker_that_is_terminated_breaks_no_answer(
    tmp_path: Path, engines: list[FakeEngine], client: aiohttp.ClientSession
) -> None:
    async with before(tmp_path, engines) as envoy:
        streams = [asyncio.create_task(read_stream(client, envoy)) for _ in range(6)]
        await until(lambda: at_engines(engines), lambda count: count == 6)
        await asyncio.sleep(0.3)
        envoy.terminate_picker()
        assert await asyncio.gather(*streams) == [(PIECES, True)] * 6
        assert envoy.picker.process is not None
        assert await asyncio.to_thread(envoy.picker.process.wait) == 0
