"""One pod's answers are one failure domain: what they raise, and how long they take, is that pod's alone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from tests.operator.reconcile.test_queue import play
from tests.operator.reconcile.world import World

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.labels import ENGINE_TYPE
from paternoster_contract.stats import MOST_MODELS, EngineStats, GatewayModelStats
from paternoster_e2e.fakes.engine import listening
from paternoster_operator.engines.adapter import LimitsCall, RuntimeType, StatsRequest
from paternoster_operator.engines.catalogue import ADAPTERS, PATERNOSTER
from paternoster_operator.engines.sglang import SglangAdapter
from paternoster_operator.queue import WorkQueue
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Answer], Awaitable[str]]
DEEP = b"[" * 60_000
LABELS = b"vllm:generation_tokens_total{%s} 1\n" % b",".join(b'l%d="x"' % i for i in range(300_000))
HOSTILE = (
    DEEP, LABELS, b"9" * 400, b"\xff" * 100, b"{}", b'{"time": ' + b"9" * 400 + b"}", b'{"models": ' + DEEP,
    b'{"done": ' + b"9" * 400 + b', "total": 1, "state": "downloading"}', b'{"version": "0.32", "running": 1e308}',
)  # fmt: skip
"""Hostile answers of any path."""


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server that gives that answer to every request; its URL."""
    async with AsyncExitStack() as servers:
        yield lambda answer: servers.enter_async_context(listening(answer))


def give(body: bytes, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status)

    return answer


class Raising:
    """An adapter whose parser meets an unforeseen error."""

    kind = PATERNOSTER.kind
    without_limits = None
    stats_requests: Sequence[StatsRequest] = (StatsRequest("/stats", 2**16),)

    def __init__(self, error: Exception) -> None:
        self._error = error

    def parse_stats(self, answers: Sequence[bytes], now: float) -> EngineStats:
        raise self._error

    def limits_call(self, limits: LiveConfigPatch) -> LimitsCall | None:
        return LimitsCall("PATCH", "/admin/config", {}, self.check)

    def check(self, answer: bytes) -> object:
        raise self._error


ERRORS = (
    OverflowError("int too large"), RecursionError("deep"), IndexError(), KeyError("x"), MemoryError(), TypeError("t"),
)  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_whatever_a_pod_raises_is_its_own_fault(
    world: World, serve: Serve, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    url, adapter = f"http://127.0.0.1:{world.engine.port}", Raising(error)
    stats, faults, _ = await world.scraper.read_engines({"bad": url, "good": url}, {"bad": adapter})
    assert stats.keys() == {"good"}
    assert faults.keys() == {"bad"}
    assert faults["bad"].startswith(f"its answers cannot be read: {type(error).__name__}")
    await world.scraper.set_limits(await serve(give(b"{}")), LiveConfigPatch(live_cap=1), (), adapter)
    assert "did not take" in caplog.text


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: repr(body[:24]))
async def test_a_fleet_with_hostile_pods_is_reconciled(
    world: World, serve: Serve, document: Callable[..., dict[str, Any]], body: bytes
) -> None:
    """Beside an honest pod one of each type, which gives that body to every request, and the same from gateways."""
    url = await serve(give(body))
    world.scraper._gateway_url = url
    pods = [world.engine.pod("honest")]
    for type_ in RuntimeType:
        pod = world.engine.pod(f"hostile-{type_.lower()}", annotations={ENGINE_TYPE: str(type_)})
        for port in pod["spec"]["containers"][0]["ports"]:
            port["containerPort"] = int(url.rpartition(":")[2])
        pods.append(pod)
    world.cluster.resource, world.cluster.shown_pods = document(replicas=len(pods)), pods
    for _ in range(2):
        await world.reconcile()
    (fleet,) = world.reconciler.fleets.values()
    assert fleet.observed.engines.keys() == {"honest"}
    assert {pod["metadata"]["name"] for pod in pods[1:]} == fleet.observed.refused.keys()
    assert await world.scraper.read_downloads({"hostile": url}) == {}
    assert await world.scraper.read_gateways("a-uid") == []


async def test_a_check_of_a_hostile_answer_ends_with_that_call(
    world: World, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    await world.scraper.set_limits(await serve(give(DEEP)), LiveConfigPatch(live_cap=1), (), SglangAdapter())
    await world.scraper.set_drained(await serve(give(DEEP)), True, ())
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


@pytest.mark.parametrize("call", ["read_engines", "set_limits"])
async def test_all_answers_of_a_pod_have_one_limit_of_time(serve: Serve, call: str) -> None:
    requested_paths = []

    async def refuse_late(request: web.Request) -> web.StreamResponse:
        requested_paths.append(request.path)
        await asyncio.sleep(0.7)
        return web.Response(status=401)

    url, keys = await serve(refuse_late), ["a", "b", "c", "d"]
    scraper, adapter = Scraper(timeout_seconds=1, gateway_url=None), ADAPTERS[RuntimeType.VLLM]
    try:
        if call == "read_engines":
            what = f"GET {url}/paternoster/limits: no answer within 1 s: look at the engine's load and log"
            assert await scraper.read_engines({"a": url}, {"a": adapter}, keys) == ({}, {}, {"a": what})
        else:
            await scraper.set_limits(url, LiveConfigPatch(live_cap=1), keys, adapter)
    finally:
        await scraper.close()
    assert 1 <= requested_paths.count("/paternoster/limits") <= 2, "of four keys"


@pytest.mark.parametrize(
    "models",
    [
        {str(i): {} for i in range(MOST_MODELS)},
        {str(i): {} for i in range(MOST_MODELS + 1)},
        {"x" * 600: {}},
        [1],
        "x",
    ],
    ids=["many faults", "too many", "a long name", "a list", "a text"],
)
async def test_models_of_a_gateway_are_refused_at_the_first_fault(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, models: Any
) -> None:
    validated = []
    validate = GatewayModelStats.model_validate
    monkeypatch.setattr(GatewayModelStats, "model_validate", lambda model: validated.append(model) or validate(model))

    async def stats(_: web.Request) -> web.StreamResponse:
        return web.json_response({"instance": "g", "time": 0, "models": models})

    scraper = Scraper(timeout_seconds=20, gateway_url=await serve(stats))
    try:
        assert await scraper.read_gateways("a-uid") == []
    finally:
        await scraper.close()
    assert len(validated) <= 1


async def test_other_tasks_run_while_a_gateways_models_are_read(serve: Serve) -> None:
    numbers = {"in_flight": 0, "held": 1, "requests_total": 0, "failed_total": 0, "fleet": "uid"}

    async def stats(_: web.Request) -> web.StreamResponse:
        return web.json_response({"instance": "g", "time": 0, "models": {str(i): numbers for i in range(MOST_MODELS)}})

    scraper = Scraper(timeout_seconds=60, gateway_url=await serve(stats))
    try:
        assert await scraper.held_by_fleet() == {"uid": MOST_MODELS}
    finally:
        await scraper.close()


def test_fleets_of_hostile_pods_delay_an_honest_one_by_a_period_at_most() -> None:
    """Ten pods of each type, each a fleet of a namespace of its own, that let every look take as long as one may."""
    settings, hostile = Settings(), [f"hostile-{i}" for i in range(10 * len(RuntimeType))]
    honest = [f"honest-{i}" for i in range(10)]
    # An answer, and a call of its admin API, end with their limits of time.
    longest_look = 2 * settings.scrape_timeout_seconds

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        looks: dict[str, list[float]] = {key: [] for key in honest}

        async def handle(key: str) -> float:
            if key in looks:
                looks[key].append(loop.time())
            await asyncio.sleep(0.1 if key in looks else longest_look)
            return settings.look_seconds

        queue = WorkQueue(handle, workers=settings.workers, clock=loop.time, group=lambda key: key)
        for key in (*hostile, *honest):
            queue.add(key)
        queue.start()
        await asyncio.sleep(600)
        await queue.stop()
        for times in looks.values():
            gaps = [b - a for a, b in pairwise(times)]
            assert max(gaps) - 0.1 <= 2 * settings.look_seconds
            assert len(gaps) > 600 / (2 * settings.look_seconds)

    play(story)
