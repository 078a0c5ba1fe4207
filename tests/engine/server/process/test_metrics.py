"""What is exported is what the contract declares: no more, no less."""

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paternoster_contract import __version__
from paternoster_contract.metrics import ENGINE_METRICS
from paternoster_contract.stats import EngineStats


async def _scrape(server: Any) -> dict[str, Any]:
    text = (await server.client.get("/metrics")).text
    return {family.name: family for family in text_string_to_metric_families(text)}


OF_THE_PROCESS = ("process_", "python_", "paternoster_build")
"""How the names begin of what any Python process exports."""


def _of_the_engine(families: Mapping[str, Any]) -> dict[str, Any]:
    return {name: family for name, family in families.items() if not name.startswith(OF_THE_PROCESS)}


async def test_names_kinds_and_labels_are_the_contracts(serve: Any) -> None:
    async with serve() as server:
        families = _of_the_engine(await _scrape(server))
        declared = {metric.name: metric for metric in ENGINE_METRICS}
        aliases = {metric.vllm: metric for metric in ENGINE_METRICS if metric.vllm}
        assert set(families) == {*declared, *aliases}
        for name, metric in {**declared, **aliases}.items():
            assert families[name].type == metric.kind
            for sample in families[name].samples:
                engine = {"engine"} if name in aliases else set()
                assert set(sample.labels) - {"le"} == {"model_name", *metric.labels} | engine
                assert not sample.name.endswith("_created")


async def test_aliases_can_be_switched_off(serve: Any) -> None:
    async with serve(vllm_aliases=False) as server:
        assert set(_of_the_engine(await _scrape(server))) == {metric.name for metric in ENGINE_METRICS}


@pytest.mark.parametrize("loaded", [False, True])
async def test_the_process_tells_of_itself_from_the_start(serve: Any, loaded: bool) -> None:
    async with serve(loaded=loaded) as server:
        families = await _scrape(server)
        (build,) = families["paternoster_build_info"].samples
        assert build.labels == {"component": "engine", "version": __version__}
        assert families["process_resident_memory_bytes"].samples[0].value > 1_000_000
        assert families["process_open_fds"].samples[0].value > 2
        assert {"process_cpu_seconds", "python_info", "python_gc_collections"} <= set(families)
        assert bool(_of_the_engine(families)) is loaded


@pytest.mark.parametrize("overlap", [False, True])
async def test_numbers_agree_with_stats_and_aliases(serve: Any, overlap: bool) -> None:
    async with serve("one two three", overlap=overlap) as server:
        for max_tokens in (2, 3, 4):
            await server.client.post("/v1/completions", json={"prompt": "a b", "max_tokens": max_tokens})
        await server.client.post("/v1/completions", json={"prompt": "a b", "max_tokens": 10_000})
        await server.loop.call_in_loop(lambda: None)
        stats = EngineStats.model_validate((await server.client.get("/stats")).json())
        families = await _scrape(server)

        own, vllm = "paternoster_engine_", "vllm:"

        def value(name: str, suffix: str = "_total", **labels: str) -> float:
            wanted = {"model_name": "scripted", **labels} | ({"engine": "0"} if name.startswith(vllm) else {})
            (sample,) = [s for s in families[name].samples if s.name == name + suffix and s.labels == wanted]
            return sample.value

        assert value(own + "requests") == stats.requests_total == 3
        assert stats.requests_finished_total == 3
        assert value(own + "requests_finished", finished_reason="length") == 2
        assert value(vllm + "request_success", finished_reason="stop") == 1
        assert value(own + "requests_rejected", reason="prompt_too_long") == stats.requests_rejected_total == 1
        assert value(vllm + "generation_tokens") == stats.generation_tokens_total == 2 + 3 + 4
        assert value(own + "prompt_tokens") == stats.prompt_tokens_total == 6
        assert value(own + "capacity", "") == stats.capacity == 4
        assert value(own + "time_to_first_token_seconds", "_count") == stats.queue_count_total == 3
        assert value(own + "time_to_first_token_seconds", "_sum") == stats.first_token_seconds_total
        assert stats.first_token_count_total == 3
        assert value(vllm + "inter_token_latency_seconds", "_count") == stats.inter_token_count_total == 1 + 2 + 3
        assert value(vllm + "inter_token_latency_seconds", "_sum") == stats.inter_token_seconds_total
        assert value(own + "request_generation_tokens", "_sum") == 9
        assert value(vllm + "iteration_tokens_total", "_sum") == stats.computed_tokens_total
        assert value(own + "step_seconds", "_count") == 9


async def test_counters_begin_at_zero(serve: Any) -> None:
    """A counter that appears with its first event hides that event from rate()."""
    async with serve() as server:
        families = await _scrape(server)
        reasons = {sample.labels["reason"] for sample in families["paternoster_engine_requests_rejected"].samples}
        assert reasons == {
            "never_fits", "prompt_too_long", "queue_full", "queue_too_slow", "tenant_queue_full",
            "tenant_rate_exceeded", "too_many_sequences",
        }  # fmt: skip
