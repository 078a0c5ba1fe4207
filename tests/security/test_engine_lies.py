"""An engine that lies in ``/stats``: what is impossible is refused and reported, and moves nothing in the law."""

import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from paternoster_contract.stats import EngineState, EngineStats, GatewayStats
from paternoster_e2e.fakes.engine import listening
from paternoster_operator.plausible import find_implausible
from paternoster_operator.scrape import Scraper

SOUND: dict[str, Any] = {
    **{name: 0 for name in EngineStats.model_fields if name.endswith("_total")},
    "instance": "a", "model": "m", "state": EngineState.READY, "started_at": 0, "time": 0, "last_tick_age_seconds": 0,
    "capacity": 64, "live_cap": 64, "running": 8, "waiting": 2, "kv_block_size": 32, "kv_blocks": 100,
    "kv_blocks_used": 10, "kv_blocks_cached": 0, "kv_projected_peak": 0, "max_batched_tokens": 8192,
    "token_budget": 8192,
}  # fmt: skip
NUMBERS = sorted(set(SOUND) - {"instance", "model", "state"})


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e30", "-1", "1" + "0" * 30, '"x"', "[1]", "null"])
@pytest.mark.parametrize("field", NUMBERS)
def test_numbers_are_finite_and_bounded(field: str, value: str) -> None:
    text = json.dumps({**SOUND, field: "HERE"}).replace('"HERE"', value)
    with pytest.raises(ValidationError, match=field):
        EngineStats.model_validate_json(text)


@pytest.mark.parametrize("field", ["capacity", "live_cap", "kv_block_size", "kv_blocks"])
def test_what_is_divided_by_is_not_0(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        EngineStats.model_validate({**SOUND, field: 0})


@pytest.mark.parametrize("field", ["instance", "model"])
def test_names_are_bounded(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        EngineStats.model_validate({**SOUND, field: "x" * 10_000_000})


def test_a_gateways_models_are_bounded() -> None:
    numbers = {"in_flight": 0, "held": 10**30, "requests_total": 0, "failed_total": 0}
    with pytest.raises(ValidationError, match="held"):
        GatewayStats.model_validate({"instance": "g", "time": 0, "models": {"m": numbers}})
    with pytest.raises(ValidationError, match="models"):
        GatewayStats.model_validate({"instance": "g", "time": 0, "models": {"x" * 10_000: {**numbers, "held": 0}}})


def _stats(**change: Any) -> EngineStats:
    return EngineStats.model_validate({**SOUND, **change})


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "more running than can": ({"running": 65}, "running is 65: must be at most 64"),
    "cap above the capacity": ({"live_cap": 65}, "live_cap is 65: must be at most 64"),
    "another capacity": ({"capacity": 4096}, "capacity is 4096: must be 64"),
    "more blocks than there are": ({"kv_blocks_used": 101}, "kv_blocks_used is 101: must be at most 100"),
    "queue beyond its limit": ({"waiting": 10**6}, "waiting is 1000000: must be at most"),
    "a leap of requests": ({"requests_total": 10**9}, "requests_total grew by"),
    "a leap of preemptions": ({"preemptions_total": 10**9}, "preemptions_total grew by"),
    "a leap of tokens": ({"generation_tokens_total": 10**12}, "generation_tokens_total grew by"),
    "a leap of waits": ({"queue_seconds_total": 1e11}, "queue_seconds_total grew by"),
    "a budget above the capacity": ({"token_budget": 9000}, "token_budget is 9000: must be at most 8192"),
    "a leap of steps": ({"step_sums": [1e6] + [1e5] * 20}, "step_sums[0] grew by"),
    "more seconds than passed": ({"step_sums": [200.0] + [900.0] * 20}, "step_sums[5] grew by"),
    "a leap behind a fall": ({"step_sums": [1.0] + [900.0] * 20}, "step_sums[5] grew by 900"),
    "a part of a step behind a fall": ({"step_sums": [0.5] * 21}, "step_sums[0] grew by 0.5"),
    "a leap behind a new name": ({"instance": "b", "preemptions_total": 10**9}, "preemptions_total grew by"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_cannot_be_is_refused(lie: str) -> None:
    change, words = LIES[lie]
    before = {"requests_total": 1000, "step_sums": [100.0] * 21}
    last = _stats(**before)
    reason = find_implausible(_stats(**{**before, **change}), last, 5.0, capacity=64, queue=1024)
    assert reason is not None
    assert words in str(reason)


def test_a_busy_engine_is_believed() -> None:
    """Far more than the fastest engine that was measured here does, in the first sample and between two."""
    later = _stats(
        requests_total=2000, requests_finished_total=2000, generation_tokens_total=300_000, waiting=1024,
        prompt_tokens_total=2_000_000, computed_tokens_total=2_000_000, preemptions_total=100, queue_seconds_total=9e4,
        running=64, kv_blocks_used=100,
    )  # fmt: skip
    assert find_implausible(later, None, 0.0, capacity=64, queue=1024) is None
    assert find_implausible(later, _stats(), 5.0, capacity=64, queue=1024) is None
    assert find_implausible(_stats(instance="restarted"), later, 5.0, capacity=64, queue=1024) is None


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def engine() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    """Starts an engine whose ``/stats`` gives that answer; its URL."""
    async with AsyncExitStack() as servers:
        yield lambda answer: servers.enter_async_context(listening(answer))


async def _scrape(url: str) -> tuple[dict[str, EngineStats], dict[str, str], int]:
    """What is believed, what is refused, and the bytes that the asking took at its peak."""
    scraper = Scraper(timeout_seconds=3, gateway_url=None)
    tracemalloc.start()
    try:
        stats, refused, _ = await scraper.read_engines({"ride-0": url})
        return stats, refused, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        await scraper.close()


async def test_a_body_without_end_is_cut_off(engine: Callable[[Answer], Awaitable[str]]) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 2**16)

    stats, refused, peak = await _scrape(await engine(endless))
    assert stats == {}
    assert "longer than" in refused["ride-0"]
    assert peak < 8 * 2**20


async def test_a_compressed_body_is_not_blown_up(engine: Callable[[Answer], Awaitable[str]]) -> None:
    import zlib

    bomb = zlib.compress(b" " * 100_000_000)

    async def compressed(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "deflate"})

    stats, refused, peak = await _scrape(await engine(compressed))
    assert stats == {}
    assert refused
    assert peak < 8 * 2**20


async def test_a_redirect_is_not_followed(engine: Callable[[Answer], Awaitable[str]]) -> None:
    calls = []

    async def other(_: web.Request) -> web.StreamResponse:
        calls.append(1)
        return web.json_response(SOUND)

    target = await engine(other)

    async def elsewhere(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{target}/stats")

    stats, _, _ = await _scrape(await engine(elsewhere))
    assert stats == {}
    assert calls == []
