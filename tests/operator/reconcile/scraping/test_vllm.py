"""A vLLM that is scraped and steered over HTTP, with the answers of a real one."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.operator.reconcile.world import LIMITS, METRICS, VLLM, VLLM_METRICS

from paternoster_contract.admin import LiveConfigPatch
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_operator.engines.answers import LONGEST_METRICS
from paternoster_operator.engines.vllm import LONGEST_REPORT, VllmAdapter
from paternoster_operator.scrape import Scraper

KEYS = ["old", "new"]


@pytest.fixture
async def vllm() -> AsyncIterator[FakeEngine]:
    """One that accepts the new key, and takes no key with its metrics."""

    async def expose(_: FakeEngine, request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers, "no key is sent where none is needed"
        return web.Response(body=VLLM_METRICS)

    engine = FakeEngine(answers={**VLLM, METRICS: expose}, accepts=lambda key: key == "Bearer new")
    async with engine.listening():
        yield engine


@pytest.fixture
async def scraper() -> AsyncIterator[Scraper]:
    found = Scraper(timeout_seconds=5, gateway_url=None)
    yield found
    await found.close()


async def test_the_first_key_that_it_accepts_is_used(vllm: FakeEngine, scraper: Scraper) -> None:
    stats, faults, _ = await scraper.read_engines({"a": vllm.url}, {"a": VllmAdapter()}, KEYS)
    assert faults == {}
    assert (stats["a"].engine_version, stats["a"].preemptions_total) == ("0.32.0+cpu", 17)
    limits = LiveConfigPatch(live_cap=4, token_budget=64, max_queue_milliseconds=9)
    await scraper.set_limits(vllm.url, limits, KEYS, VllmAdapter())
    assert vllm.patches == [limits.model_dump()]


@pytest.mark.parametrize("keys", [[], ["other"]])
async def test_without_its_key_it_is_left_out(vllm: FakeEngine, scraper: Scraper, keys: list[str]) -> None:
    stats, faults, failed = await scraper.read_engines({"a": vllm.url}, {"a": VllmAdapter()}, keys)
    assert (stats, faults) == ({}, {})
    why = "it accepts none of the fleet's admin keys: let it read the folder of keys that the operator mounts"
    assert failed["a"] == f"GET {vllm.url}/paternoster/limits: HTTP 401: {why}"


async def test_what_an_engine_lacks_is_a_fault_by_name(vllm: FakeEngine, scraper: Scraper) -> None:
    vllm.answers[LIMITS] = 501, b'{"error": {"message": "the scheduler Other has no max_num_active_reqs"}}'
    stats, faults, _ = await scraper.read_engines({"a": vllm.url}, {"a": VllmAdapter()}, KEYS)
    assert stats == {}
    assert "the scheduler Other has no max_num_active_reqs" in faults["a"]


async def test_answers_that_are_too_long_are_not_read_to_their_end(vllm: FakeEngine, scraper: Scraper) -> None:
    vllm.answers[METRICS] = b"#" * (LONGEST_METRICS + 1)
    assert await scraper.read_engines({"a": vllm.url}, {"a": VllmAdapter()}, KEYS) == (
        {}, {"a": f"the answer is longer than {LONGEST_METRICS} bytes"}, {},
    )  # fmt: skip
    vllm.answers[METRICS], vllm.answers[LIMITS] = b"", b" " * (LONGEST_REPORT + 1)
    assert await scraper.read_engines({"a": vllm.url}, {"a": VllmAdapter()}, KEYS) == (
        {}, {"a": f"the answer is longer than {LONGEST_REPORT} bytes"}, {},
    )  # fmt: skip
