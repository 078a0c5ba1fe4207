"""A refusal is no failure: it goes to the client at once, or one other replica gets the request, within a budget."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, answer, stats, until

from paternoster_contract.http.headers import NOT_SERVING
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.routing import retry_budget

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
CALLS = 50
FULL = {"error": {"message": "the queue is full", "type": "Service Unavailable", "param": None, "code": None}}


def refusing(status: int = 503, **headers: str) -> Behave:
    async def behave(_: FakeEngine, __: web.Request) -> web.StreamResponse:
        return web.json_response(FULL, status=status, headers={"Retry-After": "7", **headers})

    return behave


async def reset(_: FakeEngine, request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def send_request(client: aiohttp.ClientSession, door: Door) -> tuple[int, str | None, object]:
    async with client.post(f"{door.url}/v1/completions", json={"model": "m", "prompt": "up"}) as response:
        return response.status, response.headers.get("Retry-After"), await response.json()


async def published(client: aiohttp.ClientSession, door: Door, *engines: FakeEngine, **fields: object) -> None:
    door.publish(*engines, **fields)
    await until(lambda: stats(client, door), lambda models: "m" in models)


async def retries(client: aiohttp.ClientSession, door: Door) -> dict[str, float]:
    """Number of retries by reason."""
    async with client.get(f"{door.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    found = (line.split() for line in lines if line.startswith("paternoster_gateway_retries_"))
    return {name.removeprefix("paternoster_gateway_retries_"): float(value) for name, value in found}


@pytest.mark.parametrize("status", [503, 502, 504, 429])
async def test_a_refusal_of_the_only_replica_is_the_answer(
    client: aiohttp.ClientSession, door: Door, start: Start, status: int
) -> None:
    engine = await start("a", refusing(status))
    await published(client, door, engine)
    got = await asyncio.gather(*(send_request(client, door) for _ in range(CALLS)))
    assert got == [(status, "7", FULL)] * CALLS
    assert len(engine.bodies) == CALLS, "each was sent once"


@pytest.mark.parametrize("replicas", [2, 4])
async def test_a_full_fleet_gets_each_request_at_most_twice(
    client: aiohttp.ClientSession, door: Door, start: Start, replicas: int
) -> None:
    engines = [await start(f"{number}", refusing()) for number in range(replicas)]
    await published(client, door, *engines)
    got = await asyncio.gather(*(send_request(client, door) for _ in range(CALLS)))
    assert got == [(503, "7", FULL)] * CALLS
    # A replica that refused a moment ago gets no further request.
    many = sum(len(engine.bodies) for engine in engines)
    assert CALLS < many <= 2 * CALLS
    assert (await retries(client, door))['total{reason="status_503"}'] == many - CALLS


async def test_a_refused_request_is_sent_to_one_other_replica(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engines = [await start(f"{number}", refusing()) for number in range(4)]
    await published(client, door, *engines)
    assert (await send_request(client, door))[:2] == (503, "7")
    assert sorted(len(engine.bodies) for engine in engines) == [0, 0, 1, 1]


async def test_a_full_replica_gets_no_request_while_another_has_room(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    full, good = await start("full", refusing()), await start("good", answer)
    await published(client, door, full, good)
    for _ in range(10):
        assert await send_request(client, door) == (200, None, {"from": "good"})
    assert len(full.bodies) <= 1


async def test_after_a_refusal_and_a_failure_the_refusal_is_the_clients(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    full, broken = await start("full", refusing()), await start("broken", reset)
    await published(client, door, full, broken)
    assert (await send_request(client, door))[:2] == (503, "7")
    assert len(broken.bodies) == 1
    assert len(full.bodies) <= 2


@pytest.mark.parametrize("why", ["loading", "draining"])
async def test_an_engine_that_does_not_serve_is_waited_for(
    client: aiohttp.ClientSession, door: Door, start: Start, why: str
) -> None:
    """The table has it as ready for a moment still, as in a rollout."""
    old, new = await start("old", refusing(**{NOT_SERVING: why})), await start("new", answer)
    await published(client, door, old)
    asking = asyncio.create_task(send_request(client, door))
    await until(lambda: asyncio.sleep(0, len(old.bodies)), lambda many: many > 0)
    door.publish(new)
    assert await asking == (200, None, {"from": "new"})


async def test_a_refusal_is_the_answer_once_the_hold_time_has_passed(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    engine = await start("a", refusing(**{NOT_SERVING: "draining"}))
    await published(client, door, engine)
    assert await send_request(client, door) == (503, "7", FULL)


async def test_the_retry_budget_bounds_all_retries_of_a_fleet(
    client: aiohttp.ClientSession, door: Door, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_budget, "RESERVE", 3)
    monkeypatch.setattr(retry_budget, "RATIO", 0.0)
    engines = [await start(f"{number}", reset) for number in range(3)]
    await published(client, door, *engines)
    got = await asyncio.gather(*(send_request(client, door) for _ in range(20)))
    assert {status for status, *_ in got} == {503}
    found = await retries(client, door)
    assert found['total{reason="unreachable"}'] == 3
    assert found["denied_total"] == 20, "each request ended because no retry was left"
    assert sum(len(engine.bodies) for engine in engines) == 20 + 3
