"""Answers that have no byte yet are moved from a draining replica to another one, with the tokens that they have."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, stats, until
from tests.gateway.proxy.streams.test_handed_over_streams import publish, read_table, series

from paternoster_contract.http import paths
from paternoster_contract.http.headers import NOT_SERVING
from paternoster_contract.stream_journal import COMMENT, JOURNAL, MEDIA_TYPE, RESUME, STREAM_ID, Resume
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.call import session
from paternoster_gateway.proxy import call_hand_over

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
BODY, STREAM = b'{"model": "m"}', b'{"model": "m", "stream": true}'
TOKENS = b"[[0,null,[5,6]]]"


class Whole:
    """Answers once ``whole`` is set, or with ``TOKENS`` as the journal once the gateway requests the call."""

    def __init__(self, numerics: str = "fp_a", hands_over: bool = True, refuses: int = 0) -> None:
        self.numerics = numerics
        self.hands_over = hands_over
        self.refuses = refuses
        """Status for calls that began elsewhere."""
        self.whole = asyncio.Event()
        self.running: dict[str, asyncio.Event] = {}
        """Event by call: whether the gateway requests it."""
        self.bodies: list[tuple[bytes, bytes]] = []
        """Body and journal of each call."""

    async def __call__(self, _: FakeEngine, request: web.Request) -> web.StreamResponse:
        call = request.headers[STREAM_ID]
        if request.path == paths.HAND_OVER:
            if request.headers[JOURNAL] != self.numerics:
                return web.Response(status=412)
            if not self.hands_over or call not in self.running:
                return web.Response(status=404)
            self.running[call].set()
            return web.Response(status=204)
        body, size = await request.read(), 0
        if RESUME in request.headers:
            resume = Resume.decode(request.headers[RESUME])
            assert resume.num_frames == 0
            if self.refuses or resume.numerics != self.numerics:
                return web.json_response({"error": {}}, status=self.refuses or 412)
            size = resume.num_bytes
        self.bodies.append((body[: len(body) - size], body[len(body) - size :]))
        requested = self.running[call] = asyncio.Event()
        waits = [asyncio.ensure_future(each.wait()) for each in (requested, self.whole)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self.running[call]
            for wait in waits:
                wait.cancel()
        if requested.is_set():
            return handed_over(self.numerics)
        return await self.answer(request)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"answer": "whole"})


def handed_over(numerics: str) -> web.Response:
    headers = {JOURNAL: numerics, NOT_SERVING: "draining", "Content-Type": MEDIA_TYPE}
    return web.Response(status=503, body=TOKENS, headers=headers)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (session, call_hand_over):
        monkeypatch.setattr(module, "HAND_OVER_SECONDS", 0.02)


async def post(client: aiohttp.ClientSession, door: Door, body: bytes = BODY) -> tuple[int, bytes]:
    async with client.post(f"{door.url}/v1/chat/completions", data=body) as response:
        assert JOURNAL not in response.headers
        return response.status, await response.read()


async def start_all(start: Start, *behaviours: Whole) -> list[FakeEngine]:
    engines = [await start(name, behave) for name, behave in zip("abc", behaviours, strict=False)]
    for engine, behave in zip(engines, behaviours, strict=True):
        engine.numerics = behave.numerics
    return engines


async def running(behave: Whole, count: int) -> None:
    async def read() -> int:
        return len(behave.running)

    await until(read, lambda found: found == count)


async def test_answers_without_a_byte_go_on_at_others(start: Start, door: Door, client: aiohttp.ClientSession) -> None:
    first, *others = behaviours = [Whole(), Whole(), Whole()]
    leaving, *ready = await start_all(start, *behaviours)
    publish(door, leaving)
    await read_table(client, door, 1)
    answers = [asyncio.create_task(post(client, door, body)) for body in (BODY, BODY, BODY, STREAM)]
    await running(first, 4)
    publish(door, *ready, draining=leaving)
    await running(first, 0)
    for other in others:
        await running(other, 2)
        other.whole.set()
    assert await asyncio.gather(*answers) == [(200, b'{"answer": "whole"}')] * 4
    found = sorted(each for other in others for each in other.bodies)
    assert found == sorted([*[(BODY, TOKENS)] * 3, (STREAM, TOKENS)])
    assert await series(client, door, "continued_streams") == {'{model="m",reason="drained"}': 4}
    assert not any((await series(client, door, "retries")).values())
    assert leaving.gone == 0
    assert (await stats(client, door))["m"]["in_flight"] == 0
    # It is not ejected: were it ready again, it would get requests at once.
    first.whole.set()
    publish(door, leaving, aliases=["also"])
    await read_table(client, door, 2)
    assert (await post(client, door))[0] == 200


@pytest.mark.parametrize(
    ("first", "second", "fields"),
    [
        (Whole, Whole, {"hand_over": False}),
        (lambda: Whole(hands_over=False), Whole, {}),
        (Whole, lambda: Whole("fp_b"), {}),
        (Whole, lambda: Whole(""), {}),
        (Whole, None, {}),
    ],
    ids=["mode Finish", "no hand-over", "other numerics", "no journals", "no other replica"],
)
async def test_answer_that_no_other_replica_continues_stays(
    start: Start,
    door: Door,
    client: aiohttp.ClientSession,
    first: Callable[[], Whole],
    second: Callable[[], Whole] | None,
    fields: dict[str, Any],
) -> None:
    behaviours = [first()] + ([] if second is None else [second()])
    leaving, *others = await start_all(start, *behaviours)
    publish(door, leaving, **fields)
    await read_table(client, door, 1)
    answer = asyncio.create_task(post(client, door))
    await running(behaviours[0], 1)
    publish(door, *others, draining=leaving, aliases=["also"], **fields)
    await read_table(client, door, 2)
    await asyncio.sleep(0.2)
    assert [len(behave.running) for behave in behaviours] == [1, 0][: len(behaviours)]
    behaviours[0].whole.set()
    assert await answer == (200, b'{"answer": "whole"}')
    assert all(not behave.bodies for behave in behaviours[1:])
    # The place at the other replica, if it had one, is free.
    behaviours[-1].whole.set()
    publish(door, *(others or [leaving]), max_in_flight=1, **fields)
    await read_table(client, door, 1)
    assert (await post(client, door))[0] == 200


async def test_answer_moves_once_another_replica_has_a_free_place(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    behaviours = [Whole(), Whole()]
    leaving, other = await start_all(start, *behaviours)
    publish(door, leaving, other, max_in_flight=1)
    await read_table(client, door, 1)
    answers = [asyncio.create_task(post(client, door)) for _ in behaviours]
    for behave in behaviours:
        await running(behave, 1)
    publish(door, other, draining=leaving, max_in_flight=1, aliases=["also"])
    await read_table(client, door, 2)
    await asyncio.sleep(0.2)
    assert len(behaviours[0].running) == 1
    behaviours[1].whole.set()
    assert [status for status, _ in await asyncio.gather(*answers)] == [200, 200]
    assert behaviours[1].bodies == [(BODY, b""), (BODY, TOKENS)]


async def test_engine_that_ends_by_itself_hands_over(start: Start, door: Door, client: aiohttp.ClientSession) -> None:
    async def ends(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        return handed_over("fp_a")

    ending, other = await start("a", ends), Whole()
    publish(door, ending, *await start_all(start, other))
    await read_table(client, door, 1)
    other.whole.set()
    assert [await post(client, door) for _ in range(4)] == [(200, b'{"answer": "whole"}')] * 4
    assert (BODY, TOKENS) in other.bodies
    assert await series(client, door, "continued_streams") == {'{model="m",reason="handed_over"}': 1}


async def fails(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    """A step of it, whatever the call."""
    await request.read()
    return web.Response(status=500, body=TOKENS, headers={JOURNAL: "fp_a", "Content-Type": MEDIA_TYPE})


async def test_answer_whose_step_fails_goes_on(start: Start, door: Door, client: aiohttp.ClientSession) -> None:
    failing, other = await start("a", fails), Whole()
    publish(door, failing, *await start_all(start, other))
    await read_table(client, door, 1)
    other.whole.set()
    assert [await post(client, door) for _ in range(4)] == [(200, b'{"answer": "whole"}')] * 4
    assert (BODY, TOKENS) in other.bodies


async def test_call_that_fails_the_steps_of_two_replicas_is_quarantined(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    engines = [await start(name, fails) for name in "abcd"]
    publish(door, *engines)
    await read_table(client, door, 1)
    for _ in range(2):
        status, text = await post(client, door)
        assert (status, b"request_quarantined" in text) == (422, True)
    assert sum(len(engine.bodies) for engine in engines) == 2


@pytest.mark.parametrize("status", [400, 412])
async def test_answer_whose_tokens_are_refused_begins_anew(
    start: Start, door: Door, client: aiohttp.ClientSession, status: int
) -> None:
    first, second = Whole(), Whole(refuses=status)
    leaving, other = await start_all(start, first, second)
    publish(door, leaving)
    await read_table(client, door, 1)
    answer = asyncio.create_task(post(client, door))
    await running(first, 1)
    second.whole.set()
    publish(door, other, draining=leaving)
    assert await answer == (200, b'{"answer": "whole"}')
    assert second.bodies == [(BODY, b"")]


async def test_replicas_that_all_hand_over_end_in_an_error(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    async def ends(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        return handed_over("fp_a")

    engines = [await start(f"e{number}", ends) for number in range(20)]
    publish(door, *engines)
    await read_table(client, door, 1)
    status, _ = await post(client, door)
    assert status == 503
    assert sum(len(engine.bodies) for engine in engines) == 17


async def test_stream_that_moved_before_its_first_frame_breaks_off_and_goes_on_from_all_its_tokens(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    seen = []

    async def breaks(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        resume = Resume.decode(request.headers[RESUME])
        seen.append((resume.num_frames, body[len(STREAM) :]))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", JOURNAL: "fp_a"})
        await response.prepare(request)
        if resume.num_frames == 0:
            await response.write(COMMENT + b"[[0,null,[7]]]\ndata: 0\n\n")
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(b"data: 1\n\ndata: [DONE]\n\n")
        return response

    first = Whole()
    [leaving] = await start_all(start, first)
    others = [await start("b", breaks), await start("c", breaks)]
    for other in others:
        other.numerics = "fp_a"
    publish(door, leaving)
    await read_table(client, door, 1)
    answer = asyncio.create_task(post(client, door, STREAM))
    await running(first, 1)
    publish(door, *others, draining=leaving)
    assert await answer == (200, b"data: 0\n\ndata: 1\n\ndata: [DONE]\n\n")
    assert seen == [(0, TOKENS), (1, TOKENS + b"\n[[0,null,[7]]]")]


async def test_client_that_leaves_while_its_answer_moves_holds_no_place(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    behaviours = [Whole(), Whole()]
    leaving, other = await start_all(start, *behaviours)
    publish(door, leaving)
    await read_table(client, door, 1)
    answer = asyncio.create_task(post(client, door))
    await running(behaviours[0], 1)
    publish(door, other, draining=leaving, max_in_flight=1)
    await running(behaviours[1], 1)
    answer.cancel()
    await running(behaviours[1], 0)
    behaviours[1].whole.set()
    assert (await post(client, door))[0] == 200
