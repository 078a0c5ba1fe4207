"""A stream that its replica breaks off goes on at another one, and its client sees nothing of it."""

from collections.abc import Awaitable, Callable
from enum import Enum

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, stats, until

from paternoster_contract.stream_journal import (
    COMMENT,
    HAND_OVER,
    JOURNAL,
    RESUME,
    STREAM_ID,
    JournalEntry,
    Resume,
    decode_journal,
    encode_entries,
)
from paternoster_e2e.fakes.engine import Behave, FakeEngine

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
BODY = b'{"model": "m", "stream": true}'
FRAMES = 6
DONE = b"data: [DONE]\n\n"
WHOLE = b"".join(b"data: %d\n\n" % number for number in range(FRAMES)) + DONE


class End(Enum):
    WHOLE = "whole"
    DIES = "dies"
    DIES_IN_A_FRAME = "dies in a frame"
    HANDS_OVER = "hands over"


async def _end_at_once() -> None:
    pass


def engine_that(
    end: End, after: int = 0, numerics: str = "fp_a", before_end: Callable[[], Awaitable[None]] = _end_at_once
) -> Behave:
    """Streams frames with a journal, of a resumed stream those that the client lacks; ends so ``after`` frames."""

    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        sent, body = 0, await request.read()
        if RESUME in request.headers:
            resume = Resume.decode(request.headers[RESUME])
            if resume.numerics != numerics:
                return web.json_response({"error": {}}, status=412)
            assert body[: len(body) - resume.num_bytes] == BODY
            entries = decode_journal(body[len(BODY) :])
            assert entries == [JournalEntry(0, (number,)) for number in range(resume.num_frames)]
            sent = resume.num_frames
        else:
            assert body == BODY
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", JOURNAL: numerics})
        await response.prepare(request)
        for count, number in enumerate(range(sent, FRAMES)):
            line = COMMENT + encode_entries([JournalEntry(0, (number,))]).encode() + b"\n"
            frame = line + b"data: %d\n\n" % number
            if count == after and end is not End.WHOLE:
                assert request.transport is not None
                await before_end()
                if end is End.HANDS_OVER:
                    await response.write(HAND_OVER + b"\n\n")
                    return response
                if end is End.DIES_IN_A_FRAME:
                    await response.write(frame[:-3])
                request.transport.close()
                return response
            await response.write(frame)
        await response.write(DONE)
        return response

    return behave


async def stream(client: aiohttp.ClientSession, door: Door) -> bytes:
    await until(lambda: list_models(client, door), bool)
    async with client.post(f"{door.url}/v1/chat/completions", data=BODY) as response:
        assert response.status == 200
        assert JOURNAL not in response.headers
        return await response.read()


async def list_models(client: aiohttp.ClientSession, door: Door) -> list[object]:
    async with client.get(f"{door.url}/v1/models") as response:
        models: list[object] = (await response.json()).get("data", [])  # an error before the table was read
        return models


async def count(client: aiohttp.ClientSession, door: Door, name: str) -> float:
    async with client.get(f"{door.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    start = f'paternoster_gateway_{name}_total{{model="m"'
    return sum(float(line.split()[-1]) for line in lines if line.startswith(start))


@pytest.mark.parametrize("end", [End.DIES, End.DIES_IN_A_FRAME, End.HANDS_OVER])
@pytest.mark.parametrize("after", [1, 3, FRAMES - 1])
async def test_client_gets_each_frame_once(
    start: Start, door: Door, client: aiohttp.ClientSession, end: End, after: int
) -> None:
    first, second = await start("a", engine_that(end, after)), await start("b", engine_that(end, after))
    door.publish(first, second)
    assert await stream(client, door) == WHOLE
    assert await count(client, door, "continued_streams") >= 1
    assert await count(client, door, "broken_streams") == 0
    ids = {headers[STREAM_ID] for engine in (first, second) for headers in engine.headers}
    assert len(ids) == 1


async def test_stream_goes_on_over_many_replicas(start: Start, door: Door, client: aiohttp.ClientSession) -> None:
    engines = [await start(f"e{number}", engine_that(End.HANDS_OVER, 2)) for number in range(7)]
    door.publish(*engines)
    assert await stream(client, door) == WHOLE


async def test_replica_of_other_numerics_does_not_continue(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    broken = await start("a", engine_that(End.DIES, 3))
    door.publish(broken, hold=False)
    other, same = await start("b", engine_that(End.WHOLE, numerics="fp_b")), await start("c", engine_that(End.WHOLE))

    async def publish_others(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        door.publish(broken, other, same)
        return await engine_that(End.DIES, 3)(engine, request)

    broken.behave = publish_others
    assert await stream(client, door) == WHOLE


async def test_stream_that_stops_every_replica_ends_with_an_error(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    """It begins at one replica; two in turn that go on with it stop before a frame: no fourth gets it."""
    engines = []

    async def behave(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        return await engine_that(End.DIES_IN_A_FRAME, 0 if RESUME in request.headers else 3)(engine, request)

    for number in range(6):
        engines.append(await start(f"e{number}", behave))
    door.publish(*engines)
    got = await stream(client, door)
    assert got.startswith(b"data: 0\n\ndata: 1\n\ndata: 2\n\ndata: {")
    assert b"request_quarantined" in got
    assert got.endswith(DONE)
    assert sum(len(engine.bodies) for engine in engines) == 3
    assert await count(client, door, "broken_streams") == 1


async def test_client_that_leaves_while_its_stream_waits_for_a_replica_is_not_held(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    only = await start("a", engine_that(End.HANDS_OVER, 2))
    door.publish(only)
    await until(lambda: list_models(client, door), bool)

    async def behave(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        door.publish(only, ready=False, aliases=["also"])
        await until(lambda: list_models(client, door), lambda names: len(names) == 2)
        return await engine_that(End.HANDS_OVER, 2)(engine, request)

    only.behave = behave
    async with client.post(f"{door.url}/v1/chat/completions", data=BODY) as response:
        assert await response.content.readany()
        await until(lambda: stats(client, door), lambda found: found["m"]["held"] == 1)
    await until(lambda: stats(client, door), lambda found: not found["m"]["held"] and not found["m"]["in_flight"])


async def test_stream_without_a_journal_ends_with_an_error(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    async def behave(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 0\n\nda")
        assert request.transport is not None
        request.transport.close()
        return response

    door.publish(await start("a", behave), await start("b", behave))
    got = await stream(client, door)
    assert got.startswith(b"data: 0\n\nda\n\ndata: {")
    assert b"broke off" in got
