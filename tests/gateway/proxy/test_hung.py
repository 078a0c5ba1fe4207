"""A replica that stands still is left, one that is slow is not."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, until

from paternoster_contract.http import paths
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.proxy import liveness

CORE_HEALTH = "/paternoster/health"
"""Path that vLLM's plugin has."""
Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"
BODY = {"model": "m", "messages": []}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(liveness, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(liveness, "AGAIN_SECONDS", 0.1)


async def silent(_: FakeEngine, __: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def headers_alone(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    await (response := web.StreamResponse()).prepare(request)
    await asyncio.Event().wait()
    return response


def stream_that_stops(kind: str = "text/event-stream") -> Behave:
    async def behave(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await asyncio.Event().wait()
        return response

    return behave


async def slow(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
    """The first byte, and every other, come later than a replica may be quiet for."""
    await asyncio.sleep(1.5)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(2):
        await response.write(b"data: %d\n\n" % number)
        await asyncio.sleep(1.5)
    return response


async def post(client: aiohttp.ClientSession, door: Door) -> tuple[int, str]:
    async with asyncio.timeout(20), client.post(door.url + PATH, json=BODY) as response:
        return response.status, await response.text()


async def metrics(client: aiohttp.ClientSession, door: Door) -> str:
    async with client.get(f"{door.url}/metrics") as response:
        return await response.text()


async def wait_for_table(client: aiohttp.ClientSession, door: Door) -> None:
    async def models() -> str:
        async with client.get(f"{door.url}/v1/models") as response:
            return await response.text()

    await until(models, lambda text: '"m"' in text)


LONGEST_SILENCE = liveness.QUIET_SECONDS + liveness.PROBES * liveness.PROBE_SECONDS
"""Before the fixture shortens them."""


def test_a_hang_is_found_within_eight_seconds() -> None:
    assert LONGEST_SILENCE <= 8


@pytest.mark.parametrize("behave", [silent, headers_alone])
async def test_a_request_without_a_byte_of_an_answer_goes_to_another_replica(
    client: aiohttp.ClientSession, door: Door, start: Start, behave: Behave
) -> None:
    bad, good = await start("bad", behave), await start("good", answer)
    bad.hung = True
    door.publish(bad)
    await wait_for_table(client, door)
    sent = asyncio.create_task(post(client, door))
    while not bad.bodies:
        await asyncio.sleep(0.01)
    door.publish(bad, good)
    assert await sent == (200, '{"from": "good"}')
    text = await metrics(client, door)
    assert 'paternoster_gateway_retries_total{reason="hung"} 1.0' in text
    assert "paternoster_gateway_replicas_hung 1.0" in text
    assert "paternoster_gateway_hangs_total 1.0" in text


async def test_a_replica_is_probed_by_the_path_of_its_row(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    """Its ``/health`` answers while its engine core stands still, as vLLM's does."""
    bad, good = await start("bad", silent), await start("good", answer)
    bad.answers[CORE_HEALTH] = 503
    door.publish(bad, health_path=CORE_HEALTH)
    await wait_for_table(client, door)
    sent = asyncio.create_task(post(client, door))
    while not bad.bodies:
        await asyncio.sleep(0.01)
    door.publish(bad, good, health_path=CORE_HEALTH)
    assert await sent == (200, '{"from": "good"}')
    assert bad.probes == 0
    assert "paternoster_gateway_hangs_total 1.0" in await metrics(client, door)


async def test_a_replica_without_the_path_of_its_row_has_health(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("plain", slow)
    door.publish(engine, health_path=CORE_HEALTH)
    await wait_for_table(client, door)
    assert (await post(client, door))[0] == 200
    assert engine.probes >= 1
    assert "paternoster_gateway_hangs_total 0.0" in await metrics(client, door)
    engine.hung, engine.behave = True, silent
    sent = asyncio.create_task(post(client, door))
    await until(lambda: metrics(client, door), lambda text: "paternoster_gateway_hangs_total 1.0" in text)
    sent.cancel()


async def test_a_hung_replica_gets_no_request_until_it_answers_a_probe(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    bad, good = await start("bad", silent), await start("good", answer)
    bad.hung = True
    door.publish(bad, good)
    await wait_for_table(client, door)
    await asyncio.gather(*(post(client, door) for _ in range(4)))
    seen = len(bad.bodies)
    assert seen >= 1
    for _ in range(4):
        assert await post(client, door) == (200, '{"from": "good"}')
    assert len(bad.bodies) == seen
    bad.hung, bad.behave = False, answer
    await until(lambda: post(client, door), lambda got: got == (200, '{"from": "bad"}'))
    assert "paternoster_gateway_replicas_hung 0.0" in await metrics(client, door)


async def test_a_stream_that_began_ends_with_an_error(client: aiohttp.ClientSession, door: Door, start: Start) -> None:
    bad = await start("bad", stream_that_stops())
    bad.hung = True
    door.publish(bad)
    await wait_for_table(client, door)
    status, text = await post(client, door)
    assert status == 200
    assert text.startswith("data: 1\n\n")
    assert "broke off its answer" in text
    assert text.endswith("data: [DONE]\n\n")
    assert 'broken_streams_total{model="m"} 1.0' in await metrics(client, door)


async def test_a_slow_replica_that_answers_probes_is_waited_for(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("slow", slow)
    door.publish(engine)
    await wait_for_table(client, door)
    assert await post(client, door) == (200, "data: 0\n\ndata: 1\n\n")
    assert len(engine.bodies) == 1
    assert engine.probes >= 2


async def test_an_engine_that_reports_a_stalled_loop_is_hung(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    bad, good = await start("bad", silent), await start("good", answer)
    bad.answers[paths.HEALTH] = good.answers[paths.HEALTH] = 503, b'{"status": "stalled"}'
    door.publish(bad, good)
    await wait_for_table(client, door)
    answers = await asyncio.gather(*(post(client, door) for _ in range(2)))
    assert answers == [(200, '{"from": "good"}')] * 2
    assert bad.bodies


async def test_a_request_is_held_for_its_time_while_all_replicas_are_hung(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    bad = await start("bad", silent)
    bad.hung = True
    door.publish(bad, hold_timeout_seconds=1.0)
    await wait_for_table(client, door)
    status, text = await post(client, door)
    assert status == 503
    assert "became ready within 1 s" in text
