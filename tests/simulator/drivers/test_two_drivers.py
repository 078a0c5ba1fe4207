"""The gateway on asyncio and the simulator in virtual time run one balancer: what it decides is the same in both."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door, serving_table
from tests.simulator.drivers.recorded_balancer import RecordedBalancer, replay

from paternoster_contract.http.headers import NOT_SERVING
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_engine.core.errors import QueueFull
from paternoster_engine.core.request import Request
from paternoster_gateway import app as gateway_app
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.routing.decisions import Reject, Result, ReturnResult
from paternoster_gateway.routing.limits import MAX_ATTEMPTS
from paternoster_simulator.cost import to_ticks
from paternoster_simulator.events import EventQueue
from paternoster_simulator.fleet import Pod
from paternoster_simulator.outcome.records import RequestOutcome
from paternoster_simulator.virtual_gateway import VirtualGateway
from paternoster_traces.trace import TraceRow

REPLICAS = MAX_ATTEMPTS + 1
"""One more than a request is sent to: it ends although another replica may have answered."""
ANSWERS = 24
"""Requests of the run that is recorded, in each of its parts."""


@dataclass
class Gateway:
    """The real one, its balancer recorded, before engines in order of their URLs."""

    door: Door
    balancer: RecordedBalancer
    engines: list[FakeEngine]
    client: aiohttp.ClientSession
    behaviours: dict[str, str] = field(default_factory=dict)
    """Behaviour by URL of an engine; ``ok`` without."""

    async def publish(self, count: int, **fields: Any) -> None:
        """The first ``count`` engines are ready; returns when the balancer routes by that table."""
        self.door.publish(*self.engines[:count], **fields)
        async with asyncio.timeout(20):
            while not self._is_published(count, fields):
                await asyncio.sleep(0.02)

    def _is_published(self, count: int, fields: dict[str, Any]) -> bool:
        row = self.balancer.table.models.get("m")
        if row is None or [each.url for each in row.replicas] != [each.url for each in self.engines[:count]]:
            return False
        return all(getattr(row, name) == value for name, value in fields.items())

    async def send_request(self) -> int:
        url = f"{self.door.url}/v1/completions"
        async with self.client.post(url, json={"model": "m", "prompt": "up"}) as response:
            try:
                await response.read()
            except aiohttp.ClientError:
                return 0
            return response.status


@asynccontextmanager
async def recorded_gateway(
    folder: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float] | None = None
) -> AsyncIterator[Gateway]:
    balancer = RecordedBalancer()
    monkeypatch.setattr(
        gateway_app, "Dispatcher", lambda _: Dispatcher(balancer) if clock is None else Dispatcher(balancer, clock)
    )
    door = Door("", folder / "routes.json")
    door.publish()
    behaviours: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(FakeEngine(f"{number}", lambda engine, request: behave(
                behaviours.get(engine.url, "ok"), request
            )).listening())
            for number in range(REPLICAS)
        ]  # fmt: skip
        door.url = await stack.enter_async_context(serving_table(door.table))
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield Gateway(door, balancer, sorted(engines, key=lambda each: each.url), client, behaviours)


async def behave(how: str, request: web.Request) -> web.StreamResponse:
    if how == "reset":
        assert request.transport is not None
        request.transport.abort()
    if how == "loading":
        return web.json_response({}, status=503, headers={NOT_SERVING: "loading"})
    if how == "broken":
        response = web.StreamResponse()
        response.content_length = 100
        await response.prepare(request)
        await response.write(b"begun")
        assert request.transport is not None
        await asyncio.sleep(0.05)
        request.transport.abort()
        return response
    return web.json_response({}, status={"full": 503, "refuses": 502}.get(how, 200))


async def test_a_recorded_run_is_decided_alike_in_virtual_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests at the same time, engines that fail in all ways, a fleet that sleeps, wakes and sleeps again."""
    random = Random(7)
    async with recorded_gateway(tmp_path, monkeypatch) as gateway:
        await gateway.publish(0, max_held=6, hold_timeout_seconds=30)
        waiting = [asyncio.create_task(gateway.send_request()) for _ in range(8)]
        while gateway.balancer.count_held("m") < 6:
            await asyncio.sleep(0.02)
        waiting[0].cancel()
        for ready in (2, REPLICAS, 1):
            await gateway.publish(ready, max_held=6, hold_timeout_seconds=1)
            for _ in range(ANSWERS):
                how = random.choice(["ok", "ok", "ok", "full", "refuses", "loading", "reset", "broken"])
                gateway.behaviours[random.choice(gateway.engines[:ready]).url] = how
                waiting.append(asyncio.create_task(gateway.send_request()))
                await asyncio.sleep(0.02)
        await asyncio.gather(*waiting, return_exceptions=True)
        await gateway.publish(0, hold=False)
        assert await gateway.send_request() == 503
    recorded = gateway.balancer
    assert recorded.in_flight == {}
    assert {type(decision) for _, decision in recorded.decisions} >= {str, Reject}
    assert "Queue" in {decision for _, decision in recorded.decisions}
    results = {event.argument[1] for event in recorded.events if event.method == "on_result"}
    assert Result.ANSWERED in results
    assert len(results) >= 4, "a run in which engines fail in several ways"
    again = replay(recorded.events)
    assert [(each.method, each.request, each.outcome) for each in again.events] == [
        (each.method, each.request, each.outcome) for each in recorded.events
    ]


STORY: list[tuple[float, int, dict[int, str], int]] = [
    (100.0, REPLICAS, {}, 6),
    (110.0, REPLICAS, dict.fromkeys(range(REPLICAS), "full"), 3),
    (120.0, REPLICAS, dict.fromkeys(range(REPLICAS), "reset"), 1),
    (130.0, REPLICAS, {0: "reset", 1: "full"}, 7),
    (140.0, 1, {0: "full"}, 2),
    (150.0, 2, {0: "full", 1: "full"}, 3),
    (160.0, 0, {}, 1),
    (160.0, 1, {}, 0),
]
"""Moment, ready replicas, how those behave that do not answer, and how many requests come, one after another."""


async def test_a_story_is_decided_alike_by_both_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    async with recorded_gateway(tmp_path, monkeypatch, lambda: now[0]) as gateway:
        held: list[asyncio.Task[int]] = []
        for now[0], ready, behaviours, requests in STORY:
            gateway.behaviours.clear()
            gateway.behaviours |= {gateway.engines[number].url: how for number, how in behaviours.items()}
            await gateway.publish(ready)
            for _ in range(requests):
                request = asyncio.create_task(gateway.send_request())
                if ready:
                    await request
                else:
                    held.append(request)
                    while not gateway.balancer.count_held("m"):
                        await asyncio.sleep(0.02)
        assert await asyncio.gather(*held) == [200]
    numbers = {engine.url: str(number) for number, engine in enumerate(gateway.engines)}
    real = [(request, numbers.get(str(decision), decision)) for request, decision in gateway.balancer.decisions]
    assert real == virtual_story()
    assert ReturnResult() in {decision for _, decision in real}


class ScriptedReplica:
    """An engine of the simulator that behaves as it is set to."""

    def __init__(self) -> None:
        self.how = "ok"
        self.end: int | None = None
        self.in_flight = 0
        self.requests: list[Request] = []

    def add(self, request: Request, now: int) -> None:
        if self.how == "full":
            raise QueueFull("the queue is full")
        request.first_token = now if self.how == "ok" else None
        self.requests.append(request)


def virtual_story() -> list[tuple[int | None, Any]]:
    balancer, engines = RecordedBalancer(), [ScriptedReplica() for _ in range(REPLICAS)]
    pods = [Pod(f"{number}", number, 0, engine=cast(Any, engine)) for number, engine in enumerate(engines)]
    events = EventQueue()
    gateway = VirtualGateway(
        events, prefix_cache=False, max_held=256, hold_timeout=120.0, balancer=balancer,
        wake=lambda pod, replica: None, idle=lambda pod, now: None, hand_over=False,
    )  # fmt: skip
    for moment, ready, behaviours, requests in STORY:
        now = to_ticks(moment)
        for number, engine in enumerate(engines):
            engine.how = behaviours.get(number, "ok")
        for pod in pods:
            gateway.on_pod_leaving(pod, now)
        for pod in pods[:ready]:
            gateway.on_pod_ready(pod, now)
        for _ in range(requests):
            gateway.on_arrival(TraceRow(moment, 10, 10), now)
            settle(gateway, pods, events, now)
        settle(gateway, pods, events, now)
    gateway.close()
    assert RequestOutcome.UNFINISHED not in set(gateway.records.outcome)
    return balancer.decisions


def settle(gateway: VirtualGateway, pods: list[Pod], events: EventQueue, now: int) -> None:
    """Let engines answer or break off, and probes be answered, until none has a request."""
    while True:
        while events and events.next_time <= now:
            events.run_next()
        if not (busy := [pod for pod in pods if cast(Any, pod.serving).requests]):
            return
        for pod in busy:
            engine = cast(Any, pod.serving)
            requests, engine.requests = engine.requests, []
            if engine.how == "ok":
                gateway.on_finished(pod, requests, now)
            else:
                engine.in_flight = 0
                gateway.on_engine_end(pod, requests, now)
