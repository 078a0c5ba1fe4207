"""A stream that makes each engine die that goes on with it reaches few of them, and one beside deaths goes on."""

from collections.abc import Awaitable, Callable, Sequence

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door
from tests.gateway.proxy.streams.test_continued_streams import DONE, WHOLE, End, count, engine_that, stream

from paternoster_contract.http.headers import DIED, NOT_SERVING
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.proxy import proxy

Start = Callable[[str, Behave], Awaitable[FakeEngine]]


@pytest.fixture
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "PROBE_SECONDS", 0.3)


async def closes(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    """Before the headers."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def reports_death(_: FakeEngine, __: web.Request) -> web.StreamResponse:
    """Answer like a vLLM whose engine core died."""
    return web.Response(status=503, headers={NOT_SERVING: DIED})


def crashes(behave: Behave) -> Behave:
    """Wrap ``behave`` for an engine that is gone behind it."""

    async def behave_and_crash(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        engine.hung = True
        return await behave(engine, request)

    return behave_and_crash


def dies_after(frames: int) -> Behave:
    return crashes(engine_that(End.DIES, frames))


async def start_engines(start: Start, behaviours: Sequence[Behave]) -> list[FakeEngine]:
    """Eight, of which the first to get the stream does as the first of ``behaviours``, and so on."""
    left = list(behaviours)

    async def behave(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        return await left.pop(0)(engine, request)

    return [await start(f"e{number}", behave) for number in range(8)]


@pytest.mark.parametrize(
    "behaviours",
    [
        [dies_after(3), *[dies_after(0)] * 7],
        [dies_after(3), *[crashes(closes)] * 7],
        [dies_after(3), crashes(engine_that(End.DIES_IN_A_FRAME, 0)), *[dies_after(0)] * 6],
        [dies_after(3), *[crashes(reports_death)] * 7],
    ],
    ids=["behind the headers", "before the headers", "in a frame, behind the headers", "by a 503"],
)
@pytest.mark.usefixtures("short_probes")
async def test_stream_that_kills_every_engine_reaches_two_behind_the_first(
    start: Start, door: Door, client: aiohttp.ClientSession, behaviours: list[Behave]
) -> None:
    engines = await start_engines(start, behaviours)
    door.publish(*engines)
    got = await stream(client, door)
    assert got.startswith(b"data: 0\n\ndata: 1\n\ndata: 2\n\ndata: {")
    assert b"request_quarantined" in got
    assert got.endswith(DONE)
    assert sum(len(engine.bodies) for engine in engines) == 3
    assert await count(client, door, "broken_streams") == 1


@pytest.mark.parametrize("frames", [[5, 0, 0], [3, 1, 1, 0, 0]], ids=["all frames sent", "last ones lost"])
@pytest.mark.usefixtures("short_probes")
async def test_stream_that_kills_engines_at_one_position_ends_at_the_second_that_adds_nothing(
    start: Start, door: Door, client: aiohttp.ClientSession, frames: list[int]
) -> None:
    engines = await start_engines(start, [*map(dies_after, frames), *[dies_after(0)] * 3])
    door.publish(*engines)
    got = await stream(client, door)
    assert got.startswith(b"".join(b"data: %d\n\n" % number for number in range(5)) + b"data: {")
    assert b"request_quarantined" in got
    assert sum(len(engine.bodies) for engine in engines) == len(frames)


@pytest.mark.parametrize(
    "between",
    [
        [engine_that(End.DIES, 0)] * 4,
        [closes] * 4,
        [dies_after(0), engine_that(End.DIES, 0)],
        [dies_after(0), dies_after(1), dies_after(0)],
        [dies_after(0), *[engine_that(End.WHOLE, numerics="fp_b")] * 3],
    ],
    ids=["connection lost", "lost before headers", "one died", "frame between", "refusals"],
)
async def test_stream_beside_fewer_deaths_goes_on(
    start: Start, door: Door, client: aiohttp.ClientSession, between: list[Behave]
) -> None:
    """An engine that answers probes has closed a connection, and no more."""
    engines = await start_engines(start, [dies_after(3), *between, engine_that(End.WHOLE)])
    door.publish(*engines)
    assert await stream(client, door) == WHOLE
    assert sum(len(engine.bodies) for engine in engines) == len(between) + 2
