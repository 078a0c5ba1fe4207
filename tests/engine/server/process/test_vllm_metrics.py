"""What ``--vllm-metrics`` exports: vLLM's names, types and edges, and numbers that agree with a scripted run."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from paternoster_engine.core.kv.block_residency import BlockResidency

SECONDS = (
    .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
TOKEN_SECONDS = (
    .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
TOKENS = (1, 2, 5, 10, 20, 50, 100)
RESIDENCY = (
    .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800,
)  # fmt: skip

# From vLLM's vllm/v1/metrics/loggers.py: type, labels of each series, edges of histograms.
OF_VLLM: dict[str, tuple[str, set[str], tuple[float, ...]]] = {
    "vllm:num_requests_running": ("gauge", set(), ()),
    "vllm:num_requests_waiting": ("gauge", set(), ()),
    "vllm:num_requests_waiting_by_reason": ("gauge", {"reason"}, ()),
    "vllm:kv_cache_usage_perc": ("gauge", set(), ()),
    "vllm:lora_requests_info": ("gauge", {"max_lora", "running_lora_adapters", "waiting_lora_adapters"}, ()),
    "vllm:cache_config_info": ("gauge", {"block_size", "cache_dtype", "num_gpu_blocks"}, ()),
    "vllm:corrupted_requests": ("counter", set(), ()),
    "vllm:prefix_cache_queries": ("counter", set(), ()),
    "vllm:prefix_cache_hits": ("counter", set(), ()),
    "vllm:num_preemptions": ("counter", set(), ()),
    "vllm:prompt_tokens": ("counter", set(), ()),
    "vllm:prompt_tokens_by_source": ("counter", {"source"}, ()),
    "vllm:prompt_tokens_cached": ("counter", set(), ()),
    "vllm:generation_tokens": ("counter", set(), ()),
    "vllm:request_success": ("counter", {"finished_reason"}, ()),
    "vllm:spec_decode_num_drafts": ("counter", set(), ()),
    "vllm:spec_decode_num_draft_tokens": ("counter", set(), ()),
    "vllm:spec_decode_num_accepted_tokens": ("counter", set(), ()),
    "vllm:spec_decode_num_accepted_tokens_per_pos": ("counter", {"position"}, ()),
    "vllm:iteration_tokens_total": ("histogram", set(), (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)),
    "vllm:time_to_first_token_seconds": ("histogram", set(), (.001, .005, .01, .02, .04, .06, .08, .1, .25, 2560)),
    "vllm:inter_token_latency_seconds": ("histogram", set(), TOKEN_SECONDS),
    "vllm:request_time_per_output_token_seconds": ("histogram", set(), TOKEN_SECONDS),
    "vllm:e2e_request_latency_seconds": ("histogram", set(), SECONDS),
    "vllm:request_queue_time_seconds": ("histogram", set(), SECONDS),
    "vllm:request_inference_time_seconds": ("histogram", set(), SECONDS),
    "vllm:request_prefill_time_seconds": ("histogram", set(), SECONDS),
    "vllm:request_decode_time_seconds": ("histogram", set(), SECONDS),
    "vllm:request_prompt_tokens": ("histogram", set(), TOKENS),
    "vllm:request_generation_tokens": ("histogram", set(), TOKENS),
    "vllm:request_max_num_generation_tokens": ("histogram", set(), TOKENS),
    "vllm:request_params_max_tokens": ("histogram", set(), TOKENS),
    "vllm:request_prefill_kv_computed_tokens": ("histogram", set(), TOKENS),
    "vllm:request_params_n": ("histogram", set(), (1, 2, 5, 10, 20)),
    "vllm:kv_block_lifetime_seconds": ("histogram", set(), RESIDENCY),
    "vllm:kv_block_idle_before_evict_seconds": ("histogram", set(), RESIDENCY),
    "vllm:kv_block_reuse_gap_seconds": ("histogram", set(), RESIDENCY),
}  # fmt: skip
NOT_OF_VLLM_V1 = {"vllm:admission_rejections", "vllm:request_num_preemptions"}
"""Exported under vLLM's prefix as well: of vLLM's frontend, and of its first engine."""

Value = Callable[..., float]


async def _families(server: Any) -> dict[str, Any]:
    text = (await server.client.get("/metrics")).text
    return {family.name: family for family in text_string_to_metric_families(text)}


def _reader(families: dict[str, Any]) -> Value:
    def value(name: str, suffix: str = "", **labels: str) -> float:
        wanted = {"model_name": "scripted", "engine": "0", **labels}
        name = f"vllm:{name}"
        (sample,) = [s for s in families[name].samples if s.name == name + suffix and s.labels == wanted]
        return float(sample.value)

    return value


async def _values(server: Any) -> Value:
    return _reader(await _families(server))


async def test_names_types_labels_and_edges_are_vllms(serve: Any) -> None:
    async with serve() as server:
        families = {name: family for name, family in (await _families(server)).items() if name.startswith("vllm:")}
    assert families.keys() == OF_VLLM.keys() | NOT_OF_VLLM_V1
    for name, (kind, labels, edges) in OF_VLLM.items():
        assert families[name].type == kind, name
        for sample in families[name].samples:
            assert labels | {"model_name", "engine"} <= set(sample.labels), name
        had = {float(sample.labels["le"]) for sample in families[name].samples if "le" in sample.labels}
        assert set(edges) <= had, name


async def test_requests_are_observed_as_they_were_sent(serve: Any) -> None:
    async with serve("one two three four five six", max_num_seqs=4) as server:
        prompt = " ".join("abcdefghi" * 2)
        first = await server.client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 5})
        again = await server.client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
        three = await server.client.post("/v1/completions", json={"prompt": "z", "max_tokens": 3, "n": 3})
        best = await server.client.post("/v1/completions", json={"prompt": "z", "max_tokens": 2, "best_of": 2})
        cut = await server.client.post("/v1/completions", json={"prompt": "z", "max_tokens": 10_000})
        assert [answer.status_code for answer in (first, again, three, best, cut)] == [200, 200, 200, 200, 400]
        value = await _values(server)
    usage = first.json()["usage"]
    assert value("request_params_n", "_count") == 4
    assert value("request_params_n", "_sum") == 1 + 1 + 3 + 1
    assert value("request_max_num_generation_tokens", "_count") == 4
    assert value("request_max_num_generation_tokens", "_sum") == 5 + 1 + 3 + 2
    assert value("request_params_max_tokens", "_count") == 1 + 1 + 3 + 2
    assert value("request_params_max_tokens", "_sum") == 5 + 1 + 3 * 3 + 2 * 2
    cached = again.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0
    computed = value("prompt_tokens_by_source", "_total", source="local_compute")
    hit = value("prompt_tokens_by_source", "_total", source="local_cache_hit")
    assert hit >= cached
    assert hit == value("prompt_tokens_cached", "_total")
    assert computed + hit == value("prompt_tokens", "_total")
    assert value("prompt_tokens_by_source", "_total", source="external_kv_transfer") == 0
    assert value("request_prefill_kv_computed_tokens", "_sum") == computed
    assert value("request_prompt_tokens", "_sum") >= 2 * usage["prompt_tokens"]
    # Of the second request's only token there is no time between tokens.
    assert value("request_time_per_output_token_seconds", "_count") == 1 + 3 + 2


@pytest.fixture
def clock() -> Callable[[], float]:
    """Each look at it is a second after the last one."""
    times: Iterator[int] = iter(range(1_000_000))
    return lambda: float(next(times))


async def test_times_of_a_request_add_up(serve: Any, clock: Callable[[], float]) -> None:
    async with serve("one two three four five six", clock=clock) as server:
        await server.client.post("/v1/completions", json={"prompt": "a b", "max_tokens": 5})
        value = await _values(server)
    inference = value("request_inference_time_seconds", "_sum")
    decode = value("request_decode_time_seconds", "_sum")
    assert inference == value("request_prefill_time_seconds", "_sum") + decode
    assert inference + value("request_queue_time_seconds", "_sum") == value("e2e_request_latency_seconds", "_sum")
    assert value("request_time_per_output_token_seconds", "_sum") == decode / 4 > 0


async def test_requests_that_wait_are_counted_by_reason(serve: Any) -> None:
    async with serve(max_num_seqs=1) as server:
        gauges: list[Value] = []
        step = server.runner.execute

        def scraping(batch: Any) -> Any:
            families = text_string_to_metric_families(generate_latest(server.state.served.registry).decode())
            gauges.append(_reader({family.name: family for family in families}))
            return step(batch)

        server.runner.execute = scraping
        body = {"prompt": "a b", "max_tokens": 2, "n": 3}
        assert (await server.client.post("/v1/completions", json=body)).status_code == 200
    waiting = [value("num_requests_waiting") for value in gauges]
    assert waiting == [2, 2, 1, 1, 0, 0]
    assert waiting == [value("num_requests_waiting_by_reason", reason="capacity") for value in gauges]
    assert not any(value("num_requests_waiting_by_reason", reason="deferred") for value in gauges)


async def test_the_kv_cache_is_described(serve: Any) -> None:
    async with serve(block_size=8, num_blocks=64) as server:
        (sample,) = (await _families(server))["vllm:cache_config_info"].samples
    assert sample.value == 1
    assert sample.labels == {
        "model_name": "scripted", "engine": "0", "block_size": "8", "cache_dtype": "auto",
        "enable_prefix_caching": "True", "gpu_memory_utilization": "0.9", "num_cpu_blocks": "0", "num_gpu_blocks": "64",
    }  # fmt: skip


async def test_blocks_that_make_room_are_observed(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockResidency, "_draw_interval", lambda self: 1)
    async with serve("one two three", num_blocks=16) as server:
        for letter in "aabcdefghi":
            prompt = " ".join(letter * 40)
            answer = await server.client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 2})
            assert answer.status_code == 200
        value = await _values(server)
    evicted = value("kv_block_lifetime_seconds", "_count")
    assert evicted == value("kv_block_idle_before_evict_seconds", "_count") > 0
    assert value("kv_block_lifetime_seconds", "_sum") >= value("kv_block_idle_before_evict_seconds", "_sum") > 0
    assert value("kv_block_lifetime_seconds", "_bucket", le="+Inf") == evicted
    # The second request began with what the first had left.
    assert value("kv_block_reuse_gap_seconds", "_count") > 0
