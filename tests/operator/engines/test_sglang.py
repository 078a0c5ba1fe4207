"""SGLang: settings as its flags, its answers as ``/stats``, its live cap moved over HTTP at a stub of its checks."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import Unreported
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_operator.engines.adapter import StatsUnavailable
from paternoster_operator.engines.sglang import COUNTERS, GAUGES, SglangAdapter
from paternoster_operator.engines.sglang_arguments import OWNED, SglangKind
from paternoster_operator.scrape import Scraper

LABELS = '{engine_type="unified",model_name="m",tp_rank="0"}'
SAMPLES = {
    "sglang:num_running_reqs": 3, "sglang:num_queue_reqs": 2, "sglang:max_total_num_tokens": 4096,
    "sglang:num_used_tokens": 1024, "sglang:num_requests_total": 40, "sglang:num_retracted_requests_total": 6,
    "sglang:num_retracted_input_tokens_total": 500, "sglang:num_retracted_output_tokens_total": 70,
    "sglang:prompt_tokens_total": 9000, "sglang:cached_tokens_total": 1000, "sglang:generation_tokens_total": 4000,
    "sglang:inter_token_latency_seconds_sum": 80.5, "sglang:inter_token_latency_seconds_count": 3960,
}  # fmt: skip
"""Names of version 0.5.23; written by hand, as no SGLang runs on the machines of these tests."""


def exposition(**changes: Any) -> bytes:
    samples = {**SAMPLES, **changes}
    lines = [f"{name}{LABELS} {value}" for name, value in samples.items() if value is not None]
    return "\n".join(["# HELP x y", *lines, 'sglang:token_usage{tp_rank="0"} 0.25', ""]).encode()


def info(version: Any = "0.5.23", **state: Any) -> bytes:
    states = [{"effective_max_running_requests_per_dp": 32, "pp_max_micro_batch_size": 8, **state}]
    return json.dumps({"model_path": "/m", "version": version, "internal_states": states}).encode()


def test_settings_are_flags() -> None:
    settings = EngineArgs(
        model="file:///models/m", served_model_name=("m", "n"), max_num_seqs=32, max_model_len=4096,
        max_batched_tokens=2048, prefix_cache=False, kv_cache_dtype="fp8", generation_config="none",
        tensor_parallel_size=2, block_size=16, dtype="bfloat16",
    )  # fmt: skip
    launch = SglangKind().launch(settings, ["--mem-fraction-static", "0.8"])
    assert launch.command == ["python3", "-m", "sglang.launch_server"]
    assert launch.args == [
        "--model-path", "/models/m", "--served-model-name", "m", "--host", "127.0.0.1", "--port", "8000",
        "--sampling-defaults", "openai", "--dtype", "bfloat16", "--tensor-parallel-size", "2",
        "--max-running-requests", "32", "--context-length", "4096", "--chunked-prefill-size", "2048",
        "--max-queued-requests", "1024", "--page-size", "16", "--kv-cache-dtype", "fp8_e4m3", "--disable-radix-cache",
        "--enable-metrics", "--mem-fraction-static", "0.8",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("--tp=2", "--tp must not be here: use resources.gpu.count"),
        ("--max-running-requests", "--max-running-requests must not be here: use engine.maxNumSeqs"),
        ("--pp-size=2", "--pp-size must not be here: the operator's live cap counts one stage"),
    ],
)
def test_a_flag_that_a_field_owns_is_refused_by_name(word: str, line: str) -> None:
    assert SglangKind().find_owned_flags(["--mem-fraction-static", "0.8", word]) == [line]
    assert {field.partition(".")[0] for field in OWNED.values()} <= {"model", "engine", "resources"}


def test_its_answers_are_stats() -> None:
    stats = SglangAdapter().parse_stats([exposition(), info()], 5.0)
    assert (stats.capacity, stats.live_cap, stats.engine_version) == (32, 8, "0.5.23")
    assert (stats.running, stats.waiting, stats.kv_usage) == (3, 2, 0.25)
    assert (stats.requests_total, stats.requests_finished_total) == (40, 40), "they grow, whatever the gauges do"
    assert (stats.preemptions_total, stats.requests_preempted_total, stats.recomputed_tokens_total) == (6, 6, 570)
    assert (stats.prompt_tokens_total, stats.cached_prompt_tokens_total) == (9000, 1000)
    assert stats.computed_tokens_total == 8000 + 4000 + 570
    assert (stats.inter_token_seconds_total, stats.inter_token_count_total) == (80.5, 3960)
    assert stats.unreported == (Unreported.STEPS,)


def test_what_has_counted_nothing_yet_is_zero() -> None:
    nothing = dict.fromkeys(name for name in SAMPLES if name not in GAUGES.values())
    stats = SglangAdapter().parse_stats([exposition(**nothing), info()], 5.0)
    assert {getattr(stats, field) for field in COUNTERS} == {0}


@pytest.mark.parametrize(
    ("text", "answer", "fault"),
    [
        (exposition(**{"sglang:num_used_tokens": None}), info(), "/metrics has no sglang:num_used_tokens"),
        (exposition(**{"sglang:num_running_reqs": "NaN"}), info(), "is nan: must be a number"),
        (exposition(**{"sglang:max_total_num_tokens": 0}), info(), "kv_blocks: "),
        (exposition(), info(version="0.6.0"), "SGLang '0.6.0' has no table of metrics: must be 0.5"),
        (exposition(), info(version=None), "has no table of metrics"),
        (exposition(), info(pp_max_micro_batch_size=None), "has no number pp_max_micro_batch_size"),
        (exposition(), info(pp_max_micro_batch_size=0), "live_cap: "),
        (exposition(), b'{"version": "0.5.1", "internal_states": []}', "has not the state of one scheduler"),
        (exposition(), b"[]", "is no object"),
        (exposition(), b"{", "is not JSON"),
    ],
)
def test_what_is_missing_or_wrong_is_named(text: bytes, answer: bytes, fault: str) -> None:
    with pytest.raises(StatsUnavailable, match=fault):
        SglangAdapter().parse_stats([text, answer], 5.0)


class SglangServer(FakeEngine):
    """Its scheduler's checks of ``set_internal_state``."""

    async def set_internal_state(self, _: FakeEngine, request: web.Request) -> web.Response:
        for name, value in (await request.json())["server_args"].items():
            if name != "pp_max_micro_batch_size" or not 1 <= value <= self.capacity:
                return web.json_response([False])
            self.live_cap = value
        return web.json_response([True])

    async def answer_info(self, *_: object) -> web.Response:
        return web.Response(body=info(pp_max_micro_batch_size=self.live_cap))


@pytest.fixture
async def stub() -> AsyncIterator[FakeEngine]:
    server = SglangServer(capacity=32, live_cap=32)
    server.answers = {
        "/set_internal_state": server.set_internal_state, "/metrics": exposition(), "/server_info": server.answer_info,
    }  # fmt: skip
    async with server.listening():
        yield server


async def test_the_live_cap_is_moved_and_read_back(stub: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    scraper, adapter = Scraper(timeout_seconds=5, gateway_url=None), SglangAdapter()
    try:
        await scraper.set_limits(stub.url, LiveConfigPatch(live_cap=4, token_budget=64), ["key"], adapter)
        stats, faults, _ = await scraper.read_engines({"a": stub.url}, {"a": adapter}, ["key"])
        assert (stats["a"].live_cap, faults, caplog.messages) == (4, {}, [])
        await scraper.set_limits(stub.url, LiveConfigPatch(live_cap=64), ["key"], adapter)
        assert "it answered b'[false]': must be [true]" in caplog.text
        await scraper.set_limits(stub.url, LiveConfigPatch(token_budget=64), ["key"], adapter)
        assert stub.live_cap == 4
    finally:
        await scraper.close()
