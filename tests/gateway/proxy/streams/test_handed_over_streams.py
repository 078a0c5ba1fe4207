"""Streams of a draining replica go on at another one; those that cannot stay until they end."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, until

from paternoster_contract.routing import ModelRoute, Replica
from paternoster_contract.stream_journal import COMMENT, DRAINING, JOURNAL, RESUME, JournalEntry, Resume, encode_entries
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.call import session

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
BODY = b'{"model": "m", "stream": true}'
DONE = b"data: [DONE]\n\n"
FRAMES = 2000


class Paced:
    """Streams frames until ``whole`` is set, or all of them; what the client lacks, of a stream that is resumed."""

    def __init__(self, numerics: str | None = "fp_a", status: int = 200) -> None:
        self.numerics = numerics
        self.status = status
        self.whole = asyncio.Event()
        self.resumed = 0
        """Streams that began elsewhere."""
        self.running = 0
        self.drains = False
        """Whether it announces, with each frame, that it is about to end."""
        self.computed = asyncio.Event()
        """While it is not set, no stream gets a frame: a step goes on."""
        self.computed.set()
        self.dies = False
        """Whether it closes the connection in place of the next frame."""

    async def __call__(self, _: FakeEngine, request: web.Request) -> web.StreamResponse:
        first = 0
        if RESUME in request.headers:
            self.resumed += 1
            resume = Resume.decode(request.headers[RESUME])
            if self.status != 200 or resume.numerics != self.numerics:
                return web.json_response({"error": {}}, status=412 if self.status == 200 else self.status)
            first = resume.num_frames
        headers = {"Content-Type": "text/event-stream"} | ({JOURNAL: self.numerics} if self.numerics else {})
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        self.running += 1
        try:
            for number in range(first, FRAMES):
                await self.computed.wait()
                if self.dies and request.transport is not None:
                    request.transport.close()
                line = COMMENT + encode_entries([JournalEntry(0, (number,))]).encode() + b"\n" if self.numerics else b""
                await response.write(line + b"data: %d\n\n" % number)
                if self.drains:
                    await response.write(DRAINING + b"\n\n")
                if self.whole.is_set():
                    break
                await asyncio.sleep(0.005)
            await response.write(DONE)
        finally:
            self.running -= 1
        return response


def publish(door: Door, *ready: FakeEngine, draining: FakeEngine | None = None, **fields: object) -> None:
    replicas = [Replica(name=each.name, url=each.url, ready=True) for each in ready]
    if draining is not None:
        replicas.append(Replica(name=draining.name, url=draining.url, ready=False, draining=True))
    door.publish_models(m=ModelRoute.model_validate({"replicas": replicas, "hand_over": True, **fields}))


async def read_table(client: aiohttp.ClientSession, door: Door, names: int) -> None:
    async def models() -> list[object]:
        async with client.get(f"{door.url}/v1/models") as response:
            found: list[object] = (await response.json())["data"]
            return found

    await until(models, lambda found: len(found) == names)


async def read_stream(client: aiohttp.ClientSession, door: Door) -> bytes:
    async with client.post(f"{door.url}/v1/chat/completions", data=BODY) as response:
        assert response.status == 200
        return await response.read()


def is_whole(got: bytes) -> bool:
    """Whether each frame is there once, in order, and the end."""
    frames = got.removesuffix(DONE).split(b"\n\n")[:-1]
    return got.endswith(DONE) and frames == [b"data: %d" % number for number in range(len(frames))]


async def series(client: aiohttp.ClientSession, door: Door, name: str) -> dict[str, float]:
    """Values of the counter ``name`` by their labels."""
    async with client.get(f"{door.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    found = (line.removeprefix(f"paternoster_gateway_{name}_total").rsplit(" ", 1) for line in lines
             if line.startswith(f"paternoster_gateway_{name}_total"))  # fmt: skip
    return {labels: float(value) for labels, value in found}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "HAND_OVER_SECONDS", 0.02)


async def test_streams_of_a_draining_replica_go_on_at_the_others(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    behaviours = [Paced(), Paced(), Paced()]
    leaving, *others = [await start(name, behave) for name, behave in zip("abc", behaviours, strict=True)]
    publish(door, leaving)
    await read_table(client, door, 1)
    streams = [asyncio.create_task(read_stream(client, door)) for _ in range(6)]
    await until(lambda: _now(behaviours[0].running), lambda running: running == 6)
    publish(door, *others, draining=leaving)
    await until(lambda: _now(leaving.gone), lambda gone: gone == 6)
    for behave in behaviours[1:]:
        behave.whole.set()
    assert all(map(is_whole, await asyncio.gather(*streams)))
    assert [behave.resumed for behave in behaviours] == [0, 3, 3]
    assert await series(client, door, "continued_streams") == {'{model="m",reason="drained"}': 6}
    assert await series(client, door, "broken_streams") == {'{model="m"}': 0}
    assert not any((await series(client, door, "retries")).values())
    # It is not ejected: were it ready again, it would get requests at once.
    leaving.behave = answer
    publish(door, leaving, aliases=["also"])
    await read_table(client, door, 2)
    async with client.post(f"{door.url}/v1/chat/completions", data=BODY) as response:
        assert (await response.json())["from"] == "a"


async def _now(value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("first", "second", "fields"),
    [
        (Paced, Paced, {"hand_over": False}),
        (lambda: Paced(numerics=None), lambda: Paced(numerics=None), {}),
        (Paced, lambda: Paced("fp_b"), {}),
        (Paced, lambda: Paced(status=500), {}),
        (Paced, lambda: Paced(status=503), {}),
        (Paced, None, {}),
    ],
    ids=["mode Finish", "no journal", "other numerics", "fails", "full", "no other replica"],
)
async def test_stream_that_no_other_replica_continues_stays_until_it_ends(
    start: Start,
    door: Door,
    client: aiohttp.ClientSession,
    first: Callable[[], Paced],
    second: Callable[[], Paced] | None,
    fields: dict[str, object],
) -> None:
    behave = first()
    leaving, others = await start("a", behave), [] if second is None else [await start("b", second())]
    publish(door, leaving, **fields)
    await read_table(client, door, 1)
    stream = asyncio.create_task(read_stream(client, door))
    await until(lambda: _now(behave.running), bool)
    publish(door, *others, draining=leaving, aliases=["also"], **fields)
    await read_table(client, door, 2)
    await asyncio.sleep(0.2)
    assert (behave.running, leaving.gone) == (1, 0)
    behave.whole.set()
    assert is_whole(await stream)
    assert not any((await series(client, door, "continued_streams")).values())


async def test_replica_is_free_once_another_one_has_admitted_its_streams(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    """Before that one has computed their prompts; nothing of a stream is lost where it never does."""
    behaviours = [Paced(), Paced(), Paced()]
    leaving, dying, other = [await start(name, behave) for name, behave in zip("abc", behaviours, strict=True)]
    publish(door, leaving)
    await read_table(client, door, 1)
    streams = [asyncio.create_task(read_stream(client, door)) for _ in range(4)]
    await until(lambda: _now(behaviours[0].running), lambda running: running == 4)
    behaviours[1].computed.clear()
    publish(door, dying, draining=leaving)
    await until(lambda: _now(leaving.gone), lambda gone: gone == 4)
    assert (behaviours[1].resumed, behaviours[1].running) == (4, 4)
    publish(door, dying, other, draining=leaving, aliases=["also"])
    await read_table(client, door, 2)
    behaviours[1].dies = True
    behaviours[2].whole.set()
    behaviours[1].computed.set()
    assert all(map(is_whole, await asyncio.gather(*streams)))
    assert behaviours[2].resumed == 4
    continued = await series(client, door, "continued_streams")
    assert continued == {'{model="m",reason="drained"}': 4, '{model="m",reason="broken"}': 4}
    assert await series(client, door, "broken_streams") == {'{model="m"}': 0}


async def test_stream_moves_while_its_replica_is_in_a_step(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    behaviours = [Paced(), Paced()]
    leaving, other = [await start(name, behave) for name, behave in zip("ab", behaviours, strict=True)]
    publish(door, leaving)
    await read_table(client, door, 1)
    behaviours[1].whole.set()
    async with client.post(f"{door.url}/v1/chat/completions", data=BODY) as response:
        first = await response.content.readuntil(b"\n\n")
        behaviours[0].computed.clear()
        publish(door, draining=leaving, aliases=["also"])  # it stays, for now
        await read_table(client, door, 2)
        publish(door, other, draining=leaving)
        rest = await response.read()
    assert is_whole(first + rest)
    assert behaviours[1].resumed == 1
    await until(lambda: _now(leaving.gone), bool)


async def test_stream_moves_once_another_replica_is_ready(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    behaviours = [Paced(), Paced()]
    leaving, other = [await start(name, behave) for name, behave in zip("ab", behaviours, strict=True)]
    publish(door, leaving)
    await read_table(client, door, 1)
    stream = asyncio.create_task(read_stream(client, door))
    await until(lambda: _now(behaviours[0].running), bool)
    publish(door, draining=leaving, aliases=["also"])
    await read_table(client, door, 2)
    publish(door, other, draining=leaving)
    await until(lambda: _now(behaviours[1].resumed), bool)
    behaviours[1].whole.set()
    assert is_whole(await stream)
    await until(lambda: _now(leaving.gone), lambda gone: gone == 1)


async def test_stream_moves_once_another_replica_has_a_free_place(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    behaviours = [Paced(), Paced()]
    leaving, other = [await start(name, behave) for name, behave in zip("ab", behaviours, strict=True)]
    publish(door, leaving, other, max_in_flight=1)
    await read_table(client, door, 1)
    streams = [asyncio.create_task(read_stream(client, door)) for _ in behaviours]
    await until(lambda: _now(sum(behave.running for behave in behaviours)), lambda running: running == 2)
    publish(door, other, draining=leaving, max_in_flight=1, aliases=["also"])
    await read_table(client, door, 2)
    await asyncio.sleep(0.2)
    assert (leaving.gone, behaviours[1].resumed) == (0, 0)
    behaviours[1].whole.set()
    await until(lambda: _now(behaviours[1].resumed), bool)
    assert all(map(is_whole, await asyncio.gather(*streams)))
    await until(lambda: _now(leaving.gone), lambda gone: gone == 1)


@pytest.mark.parametrize("moves", [True, False])
async def test_engine_that_announces_its_end_hands_over_in_mode_hand_over_alone(
    start: Start, door: Door, client: aiohttp.ClientSession, moves: bool
) -> None:
    behaviours = [Paced(), Paced()]
    ending, other = [await start(name, behave) for name, behave in zip("ab", behaviours, strict=True)]
    publish(door, ending)
    await read_table(client, door, 1)
    stream = asyncio.create_task(read_stream(client, door))
    await until(lambda: _now(behaviours[0].running), bool)
    publish(door, ending, other, hand_over=moves, aliases=["also"])
    await read_table(client, door, 2)
    behaviours[0].drains = True
    if moves:
        await until(lambda: _now(ending.gone), bool)
    else:
        await asyncio.sleep(0.2)
    for behave in behaviours:
        behave.whole.set()
    assert is_whole(await stream)
    assert [behave.resumed for behave in behaviours] == [0, int(moves)]
