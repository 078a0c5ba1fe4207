"""A body that silences an engine is sent to no other, and requests beside it are."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, stats, until

from paternoster_contract.http.headers import DIED, NOT_SERVING
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.call.suspicion import LONG_BODY, Suspicion, suspicion_of
from paternoster_gateway.proxy import liveness
from paternoster_gateway.proxy.attempts import is_stop
from paternoster_gateway.proxy.liveness import Wait
from paternoster_gateway.routing.limits import MAX_ATTEMPTS

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
LONG = {"model": "m", "prompt": "a" * LONG_BODY}
SHORT = {"model": "m", "prompt": "a"}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(liveness, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(liveness, "AGAIN_SECONDS", 0.1)


async def silenced(engine: FakeEngine, _: web.Request) -> web.StreamResponse:
    """Any body silences this engine."""
    engine.hung = True
    await asyncio.Event().wait()
    raise AssertionError


async def silenced_by_long_ones(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
    if len(engine.bodies[-1]) > LONG_BODY or engine.hung:
        return await silenced(engine, request)
    await asyncio.Event().wait()
    raise AssertionError


async def crashes(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
    engine.hung = True
    return await closes(engine, request)


async def closes(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    await asyncio.Event().wait()
    raise AssertionError


async def post(
    client: aiohttp.ClientSession, door: Door, body: object, path: str = "/v1/completions"
) -> tuple[int, str]:
    async with asyncio.timeout(30), client.post(door.url + path, json=body) as response:
        return response.status, await response.text()


async def publish(client: aiohttp.ClientSession, door: Door, *engines: FakeEngine) -> None:
    door.publish(*engines)
    await until(lambda: stats(client, door), lambda models: "m" in models)


async def test_a_long_body_that_silences_an_engine_is_sent_to_no_other(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engines = [await start(name, silenced) for name in "abc"]
    await publish(client, door, *engines)
    for _ in range(3):
        status, text = await post(client, door, LONG)
        assert (status, '"request_quarantined"' in text) == (422, True)
    assert sum(len(engine.bodies) for engine in engines) == 1
    async with client.get(f"{door.url}/metrics") as response:
        text = await response.text()
    assert "paternoster_gateway_requests_quarantined_total 3.0" in text
    assert "paternoster_gateway_retries_total{" not in text


async def test_short_bodies_beside_a_quarantined_one_and_other_bodies_are_served(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    bad = await start("bad", silenced_by_long_ones)
    await publish(client, door, bad)
    beside = [asyncio.create_task(post(client, door, {**SHORT, "seed": number})) for number in range(4)]
    await until(lambda: asyncio.sleep(0, len(bad.bodies)), lambda count: count == 4)
    poison = asyncio.create_task(post(client, door, LONG))
    await until(lambda: asyncio.sleep(0, len(bad.bodies)), lambda count: count == 5)
    good = await start("good", answer)
    door.publish(bad, good)
    assert (await poison)[0] == 422
    assert await asyncio.gather(*beside) == [(200, '{"from": "good"}')] * 4
    assert await post(client, door, {**LONG, "seed": 1}) == (200, '{"from": "good"}')
    assert await post(client, door, LONG, "/v1/responses") == (200, '{"from": "good"}')
    assert (await post(client, door, LONG))[0] == 422
    assert len(good.bodies) == 6


async def test_a_body_that_silences_an_engine_after_its_client_left_is_quarantined(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    bad, other = await start("bad", silenced), await start("other", silenced)
    await publish(client, door, bad)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await post(client, door, LONG)
    assert len(bad.bodies) == 1

    async def hangs() -> str:
        async with client.get(f"{door.url}/metrics") as response:
            return await response.text()

    await until(hangs, lambda text: "paternoster_gateway_hangs_total 1.0" in text)
    door.publish(bad, other)
    assert (await post(client, door, LONG))[0] == 422
    assert other.bodies == []


async def test_a_short_body_that_silences_engines_is_sent_to_two(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engines = [await start(name, silenced) for name in "abc"]
    await publish(client, door, *engines)
    for _ in range(2):
        assert (await post(client, door, SHORT))[0] == 422
    assert sum(len(engine.bodies) for engine in engines) == 2


async def test_a_body_that_crashes_engines_is_sent_to_two(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engines = [await start(name, crashes) for name in "abcd"]
    await publish(client, door, *engines)
    for _ in range(2):
        assert (await post(client, door, LONG))[0] == 422
    assert sum(len(engine.bodies) for engine in engines) == 2


async def dies(engine: FakeEngine, _: web.Request) -> web.StreamResponse:
    """Its core, while the server before it answers: as vLLM does."""
    engine.hung = True
    return web.Response(status=503, headers={NOT_SERVING: DIED})


async def test_a_request_whose_replica_reports_its_death_goes_to_another(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    await publish(client, door, await start("bad", dies), await start("good", answer))
    for _ in range(2):
        assert await post(client, door, SHORT) == (200, '{"from": "good"}')


async def test_a_body_of_which_replicas_report_that_they_died_is_sent_to_two(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engines = [await start(name, dies) for name in "abcd"]
    await publish(client, door, *engines)
    for _ in range(2):
        assert (await post(client, door, SHORT))[0] == 422
    assert sum(len(engine.bodies) for engine in engines) == 2


async def test_engines_that_only_close_connections_quarantine_no_body(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engines = [await start(name, closes) for name in "abcd"]
    await publish(client, door, *engines)
    for times in (1, 2):
        assert (await post(client, door, SHORT))[0] == 503
        assert sum(len(engine.bodies) for engine in engines) == times * MAX_ATTEMPTS
        await asyncio.sleep(1.1)  # they are no longer ejected then


async def test_engines_that_refuse_connections_quarantine_no_body(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    gone = [FakeEngine(name, answer, f"http://127.0.0.1:{port}") for port, name in enumerate("xyz", 1)]
    await publish(client, door, *gone, await start("good", answer))
    for _ in range(4):
        await asyncio.sleep(0)
        assert await post(client, door, LONG) == (200, '{"from": "good"}')


async def answer_no_probe(_: str, __: float) -> bool:
    return False


def wait(*, silent: bool, answered: bool, silent_before: bool = False) -> Wait:
    seen = Wait(liveness.Liveness(answer_no_probe), "http://e", False)
    seen.silent, seen.answered, seen.silent_before = silent, answered, silent_before
    return seen


@pytest.mark.parametrize(
    ("size", "error", "seen", "expected"),
    [
        (LONG_BODY + 1, TimeoutError(), wait(silent=True, answered=False), Suspicion.CERTAIN),
        (LONG_BODY + 1, aiohttp.ServerDisconnectedError(), wait(silent=True, answered=False), Suspicion.CERTAIN),
        (LONG_BODY + 1, TimeoutError(), wait(silent=True, answered=True), Suspicion.POSSIBLE),
        (LONG_BODY, TimeoutError(), wait(silent=True, answered=False), Suspicion.POSSIBLE),
        (LONG_BODY + 1, aiohttp.ServerDisconnectedError(), wait(silent=False, answered=False), Suspicion.POSSIBLE),
        (LONG_BODY + 1, ConnectionResetError(), wait(silent=False, answered=True), Suspicion.NONE),
        (LONG_BODY + 1, TimeoutError(), wait(silent=True, answered=False, silent_before=True), Suspicion.NONE),
        (LONG_BODY + 1, aiohttp.ConnectionTimeoutError(), wait(silent=True, answered=False), Suspicion.NONE),
        (LONG_BODY + 1, aiohttp.ClientPayloadError(), wait(silent=True, answered=False), Suspicion.NONE),
    ],
)
def test_a_body_is_suspected_by_its_length_and_what_the_replica_answered_after_it(
    size: int, error: BaseException, seen: Wait, expected: Suspicion
) -> None:
    assert suspicion_of(size, seen, is_stop=is_stop(error)) is expected


async def test_bodies_beside_one_that_crashes_engines_are_served(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    """Two engines stop with all of them; the third gets one after another, and stops with the cause alone."""
    poison = {**SHORT, "prompt": "poison"}
    together = asyncio.Event()

    async def behave(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        if engine.name in "ab":
            if len(engine.bodies) == 4:
                together.set()
            await together.wait()
            together.clear()
            return await crashes(engine, request)
        if b"poison" in engine.bodies[-1]:
            return await crashes(engine, request)
        return await answer(engine, request)

    engines = [await start(name, behave) for name in "abcd"]
    await publish(client, door, engines[0])
    sent = [asyncio.create_task(post(client, door, {**SHORT, "seed": number})) for number in range(3)]
    sent.append(asyncio.create_task(post(client, door, poison)))
    await until(lambda: asyncio.sleep(0, engines[0].hung), bool)
    door.publish(engines[1])
    await until(lambda: asyncio.sleep(0, engines[1].hung), bool)
    door.publish(*engines[2:])
    *served, (status, text) = await asyncio.gather(*sent)
    assert [status for status, _ in served] == [200] * 3
    assert (status, "request_quarantined" in text) == (422, True)
    assert sum(engine.hung for engine in engines) == 3
