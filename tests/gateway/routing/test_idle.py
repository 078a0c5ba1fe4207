"""How long ago a fleet's last request was, as gateways tell operators: fleets that scale to zero sleep by it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from tests.gateway.fakes import Door, answer, stats, until

from paternoster_contract.routing import ModelRoute
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_gateway.metrics import GatewayMetrics

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
PATH = "/v1/chat/completions"


class ReportedStats:
    """Metrics with a clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.metrics = GatewayMetrics(lambda: self.now)
        self.held: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def idle(self, fleet: str = "f") -> float | None:
        routes = {"m": ModelRoute(fleet=fleet)}
        numbers = self.metrics.build_stats(routes, self.held.__getitem__, self.refused.__getitem__)
        return numbers.models["m"].idle_seconds


def test_idle_seconds_count_from_the_end_of_the_last_request() -> None:
    reported = ReportedStats()
    assert reported.idle() is None, "no request was there yet"
    reported.metrics.begin_request("m")
    reported.metrics.begin_request("m")
    reported.now += 30
    assert reported.idle() == 0.0
    reported.metrics.end_request("m", "f")
    reported.now += 5
    assert reported.idle() == 0.0, "one is still there"
    reported.metrics.end_request("m", "f")
    reported.now += 7
    assert reported.idle() == 7.0


def test_idle_seconds_are_zero_while_a_rejected_request_may_come_again() -> None:
    reported = ReportedStats()
    reported.metrics.begin_request("m")
    reported.metrics.end_request("m", "f")
    reported.refused["m"] = 1
    reported.now += 3
    assert reported.idle() == 0.0


def test_idle_seconds_do_not_count_requests_of_another_fleet() -> None:
    reported = ReportedStats()
    reported.metrics.begin_request("m")
    reported.metrics.end_request("m", "before")
    assert (reported.idle(), reported.idle("before")) == (None, 0.0)
    reported.metrics.retain_only({})
    assert reported.idle("before") is None


async def test_idle_seconds_are_zero_until_each_answer_has_ended(
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

    async def send_request() -> int:
        async with client.post(door.url + PATH, json={"model": "m"}) as response:
            await response.read()
            return response.status

    asking = asyncio.create_task(send_request())
    await until(lambda: stats(client, door), lambda models: models["m"]["idle_seconds"] == 0)
    gate.set()
    assert await asking == 200
    await until(lambda: stats(client, door), lambda models: models["m"]["idle_seconds"] > 0)
