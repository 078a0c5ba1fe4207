"""Event streams that are silent get comments: while their fleet starts, in an engine's queue, and between frames."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, route, serving_table, stats, until

from paternoster_contract.access.keys import digest_key
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.commands import gateway
from paternoster_gateway.proxy.forwarded_answer import COMMENT

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
CHAT, MESSAGES = PATHS[0], PATHS[3]
BODY = {"model": "m", "stream": True}
HELD: dict[str, Any] = {"ready": False, "hold": True}
EVENT = b'data: {"a": 1}\n\n'
OFTEN = 0.05
"""Seconds of silence before a comment."""
CHUNK = {
    "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
    "choices": [{"index": 0, "delta": {"content": "up"}, "finish_reason": None}],
}  # fmt: skip
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 0},
}  # fmt: skip


@asynccontextmanager
async def commenting(table: Path, seconds: float = OFTEN, **how: Any) -> AsyncIterator[Door]:
    limits = how.pop("limits", HttpLimits())
    async with serving_table(table, limits, comment_seconds=seconds, **how) as url:
        yield Door(url, table)


@pytest.fixture
async def lines() -> list[str]:
    return []


@pytest.fixture
async def door(table: Path, lines: list[str]) -> AsyncIterator[Door]:
    async with commenting(table, access_log=lines.append) as made:
        yield made


async def publish(client: aiohttp.ClientSession, door: Door, *engines: FakeEngine, **fields: Any) -> None:
    door.publish(*engines, **fields)
    await until(lambda: stats(client, door), lambda models: "m" in models)


def streaming(*pieces: bytes, go_on: asyncio.Event | None = None) -> Behave:
    """An engine that sends the first piece, and the others once ``go_on``."""

    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, piece in enumerate(pieces):
            if number == 1 and go_on is not None:
                await go_on.wait()
            await response.write(piece)
        return response

    return behave


async def read_comments(response: aiohttp.ClientResponse, count: int = 2) -> None:
    for _ in range(count):
        assert await response.content.readexactly(len(COMMENT)) == COMMENT


@pytest.mark.parametrize("path", PATHS)
async def test_held_stream_has_status_and_comments_before_its_fleet_serves(
    client: aiohttp.ClientSession, door: Door, start: Start, path: str
) -> None:
    engine = await start("a", streaming(EVENT))
    await publish(client, door, engine, **HELD)
    async with client.post(door.url + path, json=BODY, headers={"Accept-Encoding": "gzip"}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        await read_comments(response)
        assert engine.bodies == []
        door.publish(engine)
        assert (await response.content.read()).replace(COMMENT, b"") == EVENT
    assert engine.headers[0]["Accept-Encoding"] == "identity"


async def test_stream_without_a_byte_of_its_engine_has_comments(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    go_on = asyncio.Event()

    async def queued(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        await go_on.wait()
        return await streaming(EVENT)(engine, request)

    await publish(client, door, await start("a", queued))
    async with client.post(door.url + CHAT, json=BODY) as response:
        await read_comments(response)
        go_on.set()
        assert (await response.content.read()).replace(COMMENT, b"") == EVENT


@pytest.mark.parametrize(
    ("first", "rest", "comments"),
    [
        (EVENT, EVENT, True), (b"data: 1\r\n\r\n", EVENT, True), (EVENT + b"data: {", b'"a": 1}\n\n', False),
        (b"data: 1\n", b"\n", False), (b"data: 1\r\n\r", b"\n", False),
    ],
)  # fmt: skip
async def test_comments_stand_between_events_and_in_none(
    client: aiohttp.ClientSession, door: Door, start: Start, first: bytes, rest: bytes, comments: bool
) -> None:
    go_on = asyncio.Event()
    await publish(client, door, await start("a", streaming(first, rest, EVENT, go_on=go_on)))
    async with client.post(door.url + CHAT, json=BODY) as response:
        assert await response.content.readexactly(len(first)) == first
        if comments:
            await read_comments(response)
        else:
            await asyncio.sleep(4 * OFTEN)
        go_on.set()
        read = await response.content.read()
    assert (read.replace(COMMENT, b"") if comments else read).startswith(rest)


@pytest.mark.parametrize(
    ("fields", "key", "model", "status"),
    [
        ({}, "right", "other", 404), ({}, "wrong", "m", 401), ({"hold": False}, "right", "m", 503),
        ({"max_held": 0}, "right", "m", 503),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_what_is_refused_at_once_has_its_status(
    client: aiohttp.ClientSession, table: Path, start: Start, path: str, fields: dict[str, Any], key: str, model: str,
    status: int,
) -> None:  # fmt: skip
    async with commenting(table, 1e-6) as door:
        engine = await start("a", answer)
        await publish(client, door, engine, key_digests=[digest_key("right")], **HELD | fields)
        headers = {"Authorization": f"Bearer {key}"}
        async with client.post(door.url + path, json=BODY | {"model": model}, headers=headers) as response:
            assert response.status == status
            assert "error" in await response.json()


@pytest.mark.parametrize("path", PATHS)
async def test_error_after_the_status_is_an_event(
    client: aiohttp.ClientSession, door: Door, start: Start, lines: list[str], path: str
) -> None:
    await publish(client, door, await start("a", answer), hold_timeout_seconds=1, **HELD)
    async with client.post(door.url + path, json=BODY) as response:
        assert response.status == 200
        body = (await response.content.read()).replace(COMMENT, b"")
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    assert len(events) == 1
    if path == MESSAGES:
        assert body.startswith(b"event: error\n")
        assert (events[0]["type"], events[0]["error"]["type"]) == ("error", "overloaded_error")
        assert events[0]["request_id"] == response.headers["request-id"]
    else:
        assert events[0]["error"]["type"] == "ServiceUnavailableError"
        assert body.endswith(b"data: [DONE]\n\n")
    assert (await stats(client, door))["m"]["failed_total"] == 1
    async with client.get(f"{door.url}/metrics") as metrics:
        assert f'requests_total{{code="503",model="m",route="{path}"}} 1.0' in await metrics.text()
    await until(lambda: asyncio.sleep(0, len(lines)), bool)
    line = json.loads(lines[0])
    assert (line["response_code"], line["error_event_code"], line["complete"]) == (200, 503, True)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (CHAT, {"error": {"message": "no", "type": "T", "param": "n", "code": "c"}}, ("no", "T", "n", "c")),
        (CHAT, {"error": {"message": "no", "type": "T", "param": None, "code": 400}}, ("no", "T", None, None)),
        (CHAT, {"detail": "x"}, ("The engine answered with status 400.", "api_error", None, None)),
        (CHAT, [], ("The engine answered with status 400.", "api_error", None, None)),
        (MESSAGES, {"type": "error", "error": {"type": "T", "message": "no"}}, ("no", "invalid_request_error")),
        (MESSAGES, {"error": {"message": "no", "type": "T"}}, ("no", "invalid_request_error")),
    ],
)
async def test_error_of_an_engine_after_the_status_is_an_event(
    client: aiohttp.ClientSession, door: Door, start: Start, path: str, body: object, expected: tuple[object, ...]
) -> None:
    async def refuse(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=400)

    engine = await start("a", refuse)
    await publish(client, door, engine, **HELD)
    async with client.post(door.url + path, json=BODY) as response:
        await read_comments(response)
        door.publish(engine)
        read = (await response.content.read()).replace(COMMENT, b"")
    error = json.loads(read.partition(b"data: ")[2].partition(b"\n")[0])["error"]
    assert tuple(error[name] for name in ("message", "type", "param", "code")[: len(expected)]) == expected
    async with client.get(f"{door.url}/metrics") as metrics:
        assert f'requests_total{{code="400",model="m",route="{path}"}} 1.0' in await metrics.text()


@pytest.mark.parametrize(
    "headers", [{"Content-Type": "application/json"}, {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}]
)
async def test_answer_that_is_no_plain_stream_after_the_status_is_an_error(
    client: aiohttp.ClientSession, door: Door, start: Start, headers: dict[str, str]
) -> None:
    async def behave(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        return web.Response(body=b"{}", headers=headers)

    engine = await start("a", behave)
    await publish(client, door, engine, **HELD)
    async with client.post(door.url + CHAT, json=BODY) as response:
        await read_comments(response)
        door.publish(engine)
        assert b"answered a request for an event stream with something else" in await response.content.read()


@pytest.mark.parametrize(
    ("seconds", "path", "body"),
    [
        (OFTEN, CHAT, {"model": "m"}), (OFTEN, CHAT, BODY | {"stream": False}), (OFTEN, "/v1/embeddings", BODY),
        (OFTEN, CHAT, BODY | {"stream": "yes"}), (0, CHAT, BODY),
    ],
)  # fmt: skip
async def test_whole_answers_and_a_gateway_without_comments_wait_for_the_status(
    client: aiohttp.ClientSession, table: Path, start: Start, seconds: float, path: str, body: dict[str, Any]
) -> None:
    async with commenting(table, seconds) as door:
        await publish(client, door, await start("a", answer), hold_timeout_seconds=1, **HELD)
        async with client.post(door.url + path, json=body) as response:
            assert response.status == 503
            assert response.headers["Retry-After"]
            assert (await response.json())["error"]["type"] == "ServiceUnavailableError"


async def test_held_stream_whose_client_leaves_is_held_no_more(
    client: aiohttp.ClientSession, door: Door, start: Start, lines: list[str]
) -> None:
    await publish(client, door, await start("a", answer), **HELD)
    response = await client.post(door.url + CHAT, json=BODY)
    await read_comments(response)
    assert (await stats(client, door))["m"]["held"] == 1
    response.close()
    await until(lambda: stats(client, door), lambda models: models["m"]["held"] == 0)
    await until(lambda: asyncio.sleep(0, len(lines)), bool)
    line = json.loads(lines[0])
    assert (line["response_code"], line["complete"]) == (200, False)


async def test_held_streams_with_comments_give_their_places_to_another_fleet(
    table: Path, start: Start, client: aiohttp.ClientSession
) -> None:
    """A status with comments is no answer that has begun: those would keep their places."""
    limits = HttpLimits(max_connections=32)
    async with (
        commenting(table, limits=limits) as door,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as noisy,
    ):
        awake = route(await start("a", answer), fleet="awake")
        asleep = {f"asleep-{n}": route(fleet=f"{n}", max_held=10**6) for n in range(4)}
        door.publish_models(awake=awake, **asleep)
        await until(lambda: stats(client, door), lambda models: "awake" in models)
        responses = [
            await noisy.post(door.url + CHAT, json=BODY | {"model": model}) for _ in range(6) for model in asleep
        ]
        held = [response for response in responses if response.status == 200]
        for response in held:
            await read_comments(response)
        slow = [
            asyncio.create_task(noisy.post(f"{door.url}/v1/completions", json={"model": "awake"})) for _ in range(5)
        ]
        assert {(await task).status for task in slow} == {200}


@pytest.mark.parametrize("fails", [False, True])
async def test_official_clients_read_over_comments(
    client: aiohttp.ClientSession, door: Door, start: Start, fails: bool
) -> None:
    async def serve(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        if fails:
            return web.json_response({"error": {"message": "no room", "type": "T"}}, status=400)
        events = {
            CHAT: f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n",
            "/v1/completions": f"data: {json.dumps(CHUNK | {'choices': []})}\n\ndata: [DONE]\n\n",
            "/v1/responses": 'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", '
            '"delta": "up", "item_id": "i", "output_index": 0, "content_index": 0, "sequence_number": 0}\n\n',
            MESSAGES: f"event: message_start\ndata: {json.dumps({'type': 'message_start', 'message': MESSAGE})}\n\n",
        }
        return await streaming(events[request.path].encode())(_, request)

    engine = await start("a", serve)
    await publish(client, door, engine, **HELD)
    messages: Any = [{"role": "user", "content": "up"}]
    async with (
        openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="k", max_retries=0) as openais,
        anthropic.AsyncAnthropic(base_url=door.url, api_key="k", max_retries=0) as anthropics,
    ):
        # Each returns once the status has come.
        streams: list[Any] = await asyncio.gather(
            openais.chat.completions.create(model="m", messages=messages, stream=True),
            openais.completions.create(model="m", prompt="up", stream=True),
            openais.responses.create(model="m", input="up", stream=True),
            anthropics.messages.create(model="m", max_tokens=5, messages=messages, stream=True),
        )
        assert engine.bodies == []
        door.publish(engine)
        for stream in streams:
            if not fails:
                assert len([event async for event in stream]) == 1
                continue
            with pytest.raises(
                openai.APIError if stream is not streams[3] else anthropic.APIStatusError, match="no room"
            ):
                [event async for event in stream]


@pytest.mark.parametrize("seconds", ["-1", "0.5", "3601", "nan", "inf"])
def test_seconds_that_no_stream_could_have_are_refused(
    seconds: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    gateway.add_arguments(parser)
    assert gateway.run(parser.parse_args(["--routes", str(table), f"--stream-comment-seconds={seconds}"])) == 2
    assert f"--stream-comment-seconds is {seconds}: must be 0, or from 1 to 3600" in capsys.readouterr().err
