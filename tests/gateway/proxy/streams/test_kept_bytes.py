"""What engines make the gateway keep is counted for the tenant whose call they answer, and bounded."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, route, serving_table, stats, until

from paternoster_contract.access.identity import Identity
from paternoster_contract.access.keys import digest_key
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_contract.stream_journal import COMMENT, JOURNAL, MAX_JOURNAL_BYTES, PROGRESS_MEDIA_TYPE
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.call.journaled_stream import FREE_BYTES, MAX_FRAME_BYTES, FrameTooLong, JournaledStream
from paternoster_gateway.proxy import answer_progress, attempts
from paternoster_http import server
from paternoster_http.errors.refusal import Refusal
from paternoster_http.open_requests import OpenRequests, open_request_alone
from paternoster_http.start_turns import STARTS

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
KIB = 1024
WHOSE = {digest_key("noisy"): Identity(tenant="noisy"), digest_key("quiet"): Identity(tenant="quiet")}
KEYS: dict[str, Any] = {"key_digests": list(WHOSE), "identities": WHOSE}
FRAME = COMMENT + b"[[0,null,[5]]]\ndata: {}\n\n"


def stream_of(total: int) -> tuple[JournaledStream, OpenRequests]:
    """A stream, and the port that counts what it keeps."""
    port = OpenRequests(10, total)
    return JournaledStream("fp", port.add_request("a", lambda *_: None)), port


def test_a_short_journal_is_not_counted_and_a_long_one_about_as_it_is() -> None:
    stream, port = stream_of(2**20)
    num_lines = FREE_BYTES // len(b"[[0,null,[5]]]\n")
    for _ in range(num_lines):
        stream.feed(FRAME)
    assert port.bytes.shares.held_by() == 0
    for _ in range(9 * num_lines):
        stream.feed(FRAME)
    assert 10 * FREE_BYTES * 0.95 < port.bytes.shares.held_by() < 10 * FREE_BYTES * 1.3
    stream.drop_buffers()
    assert port.bytes.shares.held_by() == 0


def test_a_stream_goes_on_without_its_journal_where_there_is_no_room_for_it() -> None:
    stream, port = stream_of(64 * KIB)
    for _ in range(10_000):
        assert stream.feed(FRAME) == b"data: {}\n\n"
    assert (stream.num_frames, stream.can_continue) == (10_000, False)
    assert port.bytes.shares.held_by() == 0


def test_a_frame_that_is_not_whole_is_counted_until_it_is() -> None:
    stream, port = stream_of(2**20)
    for _ in range(8):
        assert stream.feed(b"a" * 64 * KIB) == b""
    assert 512 * KIB <= port.bytes.shares.held_by() <= 640 * KIB
    assert len(stream.feed(b"\n\n")) == 512 * KIB + 2
    assert port.bytes.shares.held_by() == 0
    with pytest.raises(Refusal, match="bytes of requests and answers"):
        for _ in range(16):
            stream.feed(b"a" * 64 * KIB)


def test_the_longest_frame_has_a_bound_of_its_own() -> None:
    stream = JournaledStream("fp", open_request_alone())
    with pytest.raises(FrameTooLong, match=f"more than {MAX_FRAME_BYTES} bytes"):
        for _ in range(MAX_FRAME_BYTES // 2**20 + 1):
            stream.feed(b"a" * 2**20)


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> list[OpenRequests]:
    """What counts the requests of each port of a server that starts."""
    made: list[OpenRequests] = []

    def make(*limits: int) -> OpenRequests:
        made.append(OpenRequests(*limits))
        return made[-1]

    monkeypatch.setattr(server, "OpenRequests", make)
    return made


@pytest.fixture
async def small(table: Path, ports: list[OpenRequests]) -> AsyncIterator[Door]:
    """A gateway with 1 MiB for what it keeps."""
    assert ports == []
    limits = HttpLimits(max_connections=128, max_body_bytes=64 * KIB, max_held_body_bytes=1024 * KIB)
    async with serving_table(table, limits) as url:
        yield Door(url, table)


def engine_that_writes(*pieces: bytes, media_type: str = "text/event-stream", holds: bool = True) -> Behave:
    """Answers with ``pieces`` behind the header of a journal, and leaves the answer open."""

    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": media_type, JOURNAL: "fp"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if holds:
            await asyncio.sleep(60)
        return response

    return behave


async def post(client: aiohttp.ClientSession, door: Door, model: str, key: str) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {key}"}
    async with client.post(f"{door.url}/v1/completions", json={"model": model}, headers=headers) as response:
        return response.status, await response.read()


async def test_frames_without_an_end_cost_their_tenant_alone(
    small: Door, client: aiohttp.ClientSession, start: Start, ports: list[OpenRequests]
) -> None:
    hostile = await start("a", engine_that_writes(b"data: ", *[b"a" * 64 * KIB] * 4))
    small.publish_models(hostile=route(hostile, **KEYS), m=route(await start("b", answer), **KEYS))
    await until(lambda: stats(client, small), lambda models: "hostile" in models)
    streams = [asyncio.create_task(post(client, small, "hostile", "noisy")) for _ in range(12)]
    done, _ = await asyncio.wait(streams, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert done
    for stream in done:
        status, body = stream.result()
        assert status == 200
        assert b"too many bytes of requests and answers in memory" in body
        assert body.endswith(b"data: [DONE]\n\n")
    assert ports[0].bytes.shares.held_by() <= 1024 * KIB
    assert [(await post(client, small, "m", "quiet"))[0] for _ in range(5)] == [200] * 5
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    await until(lambda: asyncio.sleep(0, ports[0].bytes.shares.held_by()), lambda held: held == 0)
    assert ports[0].bytes.shares.held_by() == 0


async def test_journals_are_dropped_before_anybody_is_refused(
    small: Door, client: aiohttp.ClientSession, start: Start, ports: list[OpenRequests]
) -> None:
    frames = COMMENT + b"[[0,null,[%b]]]\ndata: {}\n\n" % b",".join([b"5"] * 500)
    hostile = await start("a", engine_that_writes(*[frames * 10] * 20, holds=False))
    small.publish_models(hostile=route(hostile, **KEYS), m=route(await start("b", answer), **KEYS))
    await until(lambda: stats(client, small), lambda models: "hostile" in models)
    answers = await asyncio.gather(*(post(client, small, "hostile", "noisy") for _ in range(12)))
    assert answers == [(200, b"data: {}\n\n" * 200)] * 12
    assert (await post(client, small, "m", "quiet"))[0] == 200
    assert ports[0].bytes.shares.held_by() == 0


async def test_a_frame_that_is_too_long_ends_its_stream_and_is_not_asked_of_another_replica(
    door: Door, client: aiohttp.ClientSession, start: Start
) -> None:
    engines = [await start(name, engine_that_writes(*[b"a" * 2**20] * 17)) for name in "ab"]
    door.publish(*engines)
    await until(lambda: stats(client, door), lambda models: "m" in models)
    status, body = await post(client, door, "m", "")
    assert (status, body.endswith(b"data: [DONE]\n\n")) == (200, True)
    assert f"a frame of more than {MAX_FRAME_BYTES} bytes".encode() in body
    assert sum(len(engine.bodies) for engine in engines) == 1


async def test_a_journal_without_an_end_is_read_no_further_than_its_bound(
    door: Door, client: aiohttp.ClientSession, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_progress, "MAX_PROGRESS_BYTES", 2 * MAX_JOURNAL_BYTES)
    written = 0

    async def write_without_end(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": PROGRESS_MEDIA_TYPE, JOURNAL: "fp"})
        await response.prepare(request)
        while True:
            await response.write(b"[[0,null,[123]]]\n" * 4096)
            written += 17 * 4096

    door.publish(engine := await start("a", write_without_end))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    status, body = await post(client, door, "m", "")
    assert status == 503
    assert b"did not answer" in body
    assert written <= len(engine.bodies) * 10 * MAX_JOURNAL_BYTES  # with what sockets hold


async def test_an_answer_behind_its_journal_is_whole_wherever_its_pieces_end(
    door: Door, client: aiohttp.ClientSession, start: Start
) -> None:
    head = b'{"status": 200, "headers": [["content-type", "application/json"]]}\n'
    whole = b"[[0,null,[5]]]\n" * 3 + head + b'{"answer": 1}\n{"more": 2}'

    async def write_in_pieces(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        size = (1, 7, 15, 16, 46, len(whole))[len(engine.bodies) % 6]
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        return await engine_that_writes(*pieces, media_type=PROGRESS_MEDIA_TYPE, holds=False)(engine, request)

    door.publish(await start("a", write_in_pieces))
    await until(lambda: stats(client, door), lambda models: "m" in models)
    for _ in range(6):
        assert await post(client, door, "m", "") == (200, b'{"answer": 1}\n{"more": 2}')


async def test_long_pieces_of_many_answers_are_read_a_few_in_each_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that came between two iterations is read in the next one, and other requests wait."""

    class Silent:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    async def readany() -> bytes:
        return b"a" * (attempts.LONG_PIECE + 1)

    liveness = SimpleNamespace(expect_bytes=lambda *_, **__: Silent())
    sender = attempts.Attempts(SimpleNamespace(), liveness, SimpleNamespace())  # type: ignore[arg-type]
    response = SimpleNamespace(content=SimpleNamespace(readany=readany))
    admission = SimpleNamespace(party=("fleet", "noisy"))
    replica = SimpleNamespace(url="http://a")
    pieces = [
        asyncio.create_task(sender._await_piece(replica, admission, response))  # type: ignore[arg-type]
        for _ in range(5 * STARTS)
    ]
    numbers = []
    while not all(piece.done() for piece in pieces):
        await asyncio.sleep(0)
        numbers.append(sum(piece.done() for piece in pieces))
    assert max(after - before for before, after in zip([0, *numbers], numbers, strict=False)) <= STARTS
