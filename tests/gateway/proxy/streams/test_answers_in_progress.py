"""Whole answers go on at another replica from the journal that came before them, when their replica dies."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, stats, until
from tests.gateway.proxy.streams.test_handed_over_streams import series

from paternoster_contract.http.headers import NOT_SERVING
from paternoster_contract.stream_journal import (
    JOURNAL,
    MAX_JOURNAL_BYTES,
    MEDIA_TYPE,
    PROGRESS,
    PROGRESS_MEDIA_TYPE,
    RESUME,
    AnswerHead,
    JournalEntry,
    Resume,
    decode_journal,
    encode_entries,
)
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.call import session

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
BODY = b'{"model": "m"}'
TOKENS = 6
HEAD = AnswerHead(200, [(b"content-type", b"application/json"), (b"x-paternoster-prompt-tokens", b"15")])


def engine_that(
    end: bytes | None = None,
    after: int = TOKENS,
    *,
    numerics: str = "fp_a",
    line: Callable[[int], bytes] = lambda token: encode_entries([JournalEntry(0, (token,))]).encode(),
    head: AnswerHead = HEAD,
    closes: bool = True,
) -> Behave:
    """Computes six tokens, of a call that began elsewhere those that are missing, a line of the journal for each.

    ``end``: what it writes in place of the token ``after``; then it ``closes`` the connection, or ends the answer.
    """

    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        num_tokens, body = 0, await request.read()
        assert request.headers[PROGRESS] == "1"
        assert body.startswith(BODY)
        if RESUME in request.headers:
            resume = Resume.decode(request.headers[RESUME])
            if resume.numerics != numerics:
                return web.json_response({"error": {}}, status=412)
            entries = decode_journal(body[len(BODY) :])
            assert resume.num_frames == 0
            assert entries == [JournalEntry(0, (token,)) for token in range(len(entries))]
            num_tokens = len(entries)
        response = web.StreamResponse(headers={"Content-Type": PROGRESS_MEDIA_TYPE, JOURNAL: numerics})
        await response.prepare(request)
        for token in range(num_tokens, TOKENS):
            if end is not None and token == after:
                await response.write(end)
                if closes:
                    for _ in range(5):  # the gateway, of the same event loop, reads what was sent
                        await asyncio.sleep(0.01)
                    assert request.transport is not None
                    request.transport.close()
                return response
            await response.write(line(token) + b"\n")
        await response.write(head.encode() + b"\n" + b'{"answer": ')
        await response.write(b'"whole"}')
        return response

    return behave


def dying_in_turn(*after: int) -> Behave:
    """Each attempt, at any replica, ends with one of ``after`` as its number of tokens; those after them do not."""
    deaths = iter(after)

    async def behave(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        return await engine_that(b"", next(deaths, TOKENS))(engine, request)

    return behave


def count_tokens_received(engines: Sequence[FakeEngine]) -> list[int]:
    """How many tokens of others came with each request."""
    return sorted(len(decode_journal(body[len(BODY) :] or b"[]")) for engine in engines for body in engine.bodies)


async def post(client: aiohttp.ClientSession, door: Door) -> tuple[int, bytes]:
    await until(lambda: stats(client, door), lambda found: "m" in found)
    async with client.post(f"{door.url}/v1/chat/completions", data=BODY) as response:
        assert response.content_type == "application/json"
        assert JOURNAL not in response.headers
        return response.status, await response.read()


async def start_all(start: Start, door: Door, behaviours: Sequence[Behave]) -> list[FakeEngine]:
    engines = [await start(name, behave) for name, behave in zip("abcd", behaviours, strict=False)]
    door.publish(*engines)
    return engines


@pytest.mark.parametrize("after", [1, 3, 5])
@pytest.mark.parametrize("end", [b"", b"[[0,nul"])
async def test_answer_goes_on_when_its_replica_dies(
    start: Start, door: Door, client: aiohttp.ClientSession, after: int, end: bytes
) -> None:
    engines = await start_all(start, door, [engine_that(end, after), engine_that()])
    for _ in range(2):  # the first request goes to any of both
        assert await post(client, door) == (200, b'{"answer": "whole"}')
    (resumed,) = (body for engine in engines for body in engine.bodies if body != BODY)
    assert len(decode_journal(resumed[len(BODY) :])) == after
    assert await series(client, door, "continued_streams") == {'{model="m",reason="broken"}': 1}
    assert (await stats(client, door))["m"]["in_flight"] == 0


async def test_answer_goes_on_at_one_replica_after_another(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    engines = await start_all(start, door, [dying_in_turn(2, 3, 4)] * 4)
    assert await post(client, door) == (200, b'{"answer": "whole"}')
    assert count_tokens_received(engines) == [0, 2, 3, 4]


async def test_answer_goes_on_as_long_as_its_replicas_add_tokens(
    start: Start, door: Door, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_CONTINUATIONS", 2)
    engines = await start_all(start, door, [dying_in_turn(1, 3, 4)] * 4)
    assert await post(client, door) == (200, b'{"answer": "whole"}')
    assert count_tokens_received(engines) == [0, 1, 3, 4]
    assert not any((await series(client, door, "retries")).values())


async def test_answer_begins_anew_where_others_compute_other_numbers(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    behaviours = [engine_that(b"", 2), engine_that(numerics="fp_b")]
    engines = await start_all(start, door, behaviours)
    for _ in range(2):
        assert await post(client, door) == (200, b'{"answer": "whole"}')
    assert engines[1].bodies[-1] == BODY


async def test_answer_with_a_journal_that_is_too_long_begins_anew(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    def long_line(token: int) -> bytes:
        return encode_entries([JournalEntry(0, (token,) * 20_000)]).encode()

    assert len(long_line(2)) * 6 < MAX_JOURNAL_BYTES
    many = b"\n".join([long_line(7)] * 30)
    engines = await start_all(start, door, [engine_that(many, 2, line=long_line), engine_that()])
    for _ in range(2):
        assert await post(client, door) == (200, b'{"answer": "whole"}')
    assert {body for engine in engines for body in engine.bodies} == {BODY}


async def test_replica_that_ends_hands_over_all_that_it_has(
    start: Start, door: Door, client: aiohttp.ClientSession
) -> None:
    journal = encode_entries([JournalEntry(0, (token,)) for token in range(4)]).encode()
    headers = [(JOURNAL.encode(), b"fp_a"), (NOT_SERVING.encode(), b"ending"), (b"content-type", MEDIA_TYPE.encode())]
    end = AnswerHead(503, headers).encode() + b"\n" + journal
    engines = await start_all(start, door, [engine_that(end, 2, closes=False), engine_that()])
    for _ in range(2):
        assert await post(client, door) == (200, b'{"answer": "whole"}')
    assert [body for engine in engines for body in engine.bodies if body != BODY] in ([], [BODY + journal])


@pytest.mark.parametrize(
    "end",
    [
        b"{}\n",
        b'{"status": 99, "headers": []}\n',
        b'{"status": 200, "headers": [["a", "b\\r\\nx: y"]]}\n',
        b'{"status": 200, "headers": [["a b", "c"]]}\n',
        b'{"status": 200, "headers": 7}\n',
        b"x" * 2**20,
    ],
)
async def test_replica_that_sends_what_no_engine_does_is_left(
    start: Start, door: Door, client: aiohttp.ClientSession, end: bytes
) -> None:
    engines = await start_all(start, door, [engine_that(end, 2), engine_that()])
    for _ in range(2):
        assert await post(client, door) == (200, b'{"answer": "whole"}')
    assert any(engine.bodies for engine in engines[1:])


async def test_refusal_behind_a_journal_is_the_clients(start: Start, door: Door, client: aiohttp.ClientSession) -> None:
    refusal = AnswerHead(504, [(b"content-type", b"application/json")])
    await start_all(start, door, [engine_that(head=refusal)])
    assert await post(client, door) == (504, b'{"answer": "whole"}')
