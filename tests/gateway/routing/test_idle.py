"""How long ago a fleet's last request was, as gateways tell operators: fleets that scale to zero sleep by it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from fakes import Behave, Door, FakeEngine, answer, stats, until

from paternoster_contract.routing import ModelRoute
from paternoster_gateway.metrics import GatewayMetrics

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"


class Told:
    """Metrics with a clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.metrics = GatewayMetrics(lambda: self.now)
        self.held: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def idle(self, fleet: str = "f") -> float | None:
        routes = {"m": ModelRoute(fleet=fleet)}
        numbers = self.metrics.stats(routes, self.held.__getitem__, self.refused.__getitem__)
        return numbers.models["m"].idle_seconds


def test_it_counts_from_the_end_of_the_last_request() -> None:
    told = Told()
    assert told.idle() is None, "no request was there yet"
    told.metrics.begin_request("m")
    told.metrics.begin_request("m")
    told.now += 30
    assert told.idle() == 0.0
    told.metrics.end_request("m", "f")
    told.now += 5
    assert told.idle() == 0.0, "one is still there"
    told.metrics.end_request("m", "f")
    told.now += 7
    assert told.idle() == 7.0


def test_a_request_that_may_come_again_is_there() -> None:
    told = Told()
    told.metrics.begin_request("m")
    told.metrics.end_request("m", "f")
    told.refused["m"] = 1
    told.now += 3
    assert told.idle() == 0.0


def test_requests_of_another_fleet_are_not_its_own() -> None:
    told = Told()
    told.metrics.begin_request("m")
    told.metrics.end_request("m", "before")
    assert (told.idle(), told.idle("before")) == (None, 0.0)
    told.metrics.forget_all_but(())
    assert told.idle("before") is None


async def test_requests_are_there_until_their_answers_have_ended(
    client: aiohttp.ClientSession, door: Door, start: Start
) -> None:
    gate = asyncio.Event()

    async def waits(engine: FakeEngine, request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return await answer(engine, request)

    door.publish(await start("a", waits), fleet="f")
    assert (await until(lambda: stats(client, door), lambda models: "m" in models))["m"]["idle_seconds"] is None
    async with client.post(door.url + PATH, json={"model": "other"}):
        assert (await stats(client, door))["m"]["idle_seconds"] is None

    async def ask() -> int:
        async with client.post(door.url + PATH, json={"model": "m"}) as response:
            await response.read()
            return response.status

    asking = asyncio.create_task(ask())
    await until(lambda: stats(client, door), lambda models: models["m"]["idle_seconds"] == 0)
    gate.set()
    assert await asking == 200
    await until(lambda: stats(client, door), lambda models: models["m"]["idle_seconds"] > 0)
