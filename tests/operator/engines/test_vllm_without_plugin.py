"""A vLLM without the plugin: its recorded ``/metrics`` as ``/stats``, and requests that were preempted."""

import json

import pytest
from tests.operator.engines.test_vllm_stats import METRICS, RECORDED, REPORT

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.stats import EngineStats, Unreported
from paternoster_operator.engines.adapter import RuntimeType, StatsUnavailable
from paternoster_operator.engines.catalogue import TARGET_ADAPTERS
from paternoster_operator.engines.vllm import VllmAdapter
from paternoster_operator.engines.vllm_metrics import NAMES
from paternoster_operator.engines.vllm_without_plugin import GAUGES, VllmWithoutPlugin
from paternoster_operator.plausible import find_implausible

VERSION = b'{"version": "0.32.0+cpu"}'


def parse(metrics: bytes = METRICS, version: bytes = VERSION) -> EngineStats:
    return VllmWithoutPlugin().parse_stats([version, metrics], 1.5)


def test_recorded_text_has_what_the_plugin_counts() -> None:
    stats, exact = parse(), VllmAdapter().parse_stats([json.dumps(REPORT).encode(), METRICS], 1.5)
    same = (
        "model", "engine_version", "running", "waiting", "kv_block_size", "requests_finished_total",
        "preemptions_total", "prompt_tokens_total", "generation_tokens_total",
        "first_token_seconds_total", "inter_token_count_total",
    )  # fmt: skip
    assert {name: getattr(stats, name) for name in same} == {name: getattr(exact, name) for name in same}
    assert stats.kv_blocks == exact.kv_blocks + 1, "vLLM's own count has the block that no request gets"


def test_a_version_that_was_never_recorded_is_read_by_what_it_has() -> None:
    assert parse(version=b'{"version": "0.99.0"}') == parse().model_copy(update={"engine_version": "0.99.0"})


@pytest.mark.parametrize("version", ["0.30", "0.31", "0.33"])
def test_other_versions_report_the_same(version: str) -> None:
    text = (RECORDED / f"vllm-{version}-metrics.txt").read_bytes()
    stats = parse(text, json.dumps({"version": f"{version}.0"}).encode())
    assert (stats.requests_finished_total, stats.requests_preempted_total, stats.preemptions_total) == (16, 9, 9)
    assert (stats.prompt_tokens_total, stats.generation_tokens_total, stats.kv_blocks) == (1600, 3200, 22)


def test_preempted_requests_that_clients_abandon_count() -> None:
    """They are in no histogram of requests that ended, nor are those that run; vLLM's counter has each preemption."""
    counter = b'vllm:num_preemptions_total{engine="0",model_name="model"} '
    assert METRICS.count(counter + b"17.0") == 1
    stats = parse(METRICS.replace(counter + b"17.0", counter + b"162.0"))
    assert (stats.requests_preempted_total, stats.preemptions_total) == (162, 162)
    once = parse()
    assert once.requests_preempted_total == 17, "of 11 requests: one that is preempted twice counts twice"
    assert find_implausible(stats, once, 5.0, capacity=None, queue=1024) is None


def test_what_it_does_not_report_is_named() -> None:
    stats = parse()
    assert stats.unreported == (Unreported.LIMITS, Unreported.RECOMPUTED_TOKENS, Unreported.STEPS)
    assert stats.step_sums == ()
    assert stats.max_batched_tokens == 0


def test_nothing_steers_it_and_it_gets_no_key() -> None:
    assert VllmWithoutPlugin().limits_call(LiveConfigPatch(live_cap=3)) is None
    others = [adapter for type_, adapter in TARGET_ADAPTERS.items() if type_ is not RuntimeType.PATERNOSTER]
    assert not any(request.needs_key for adapter in others for request in adapter.stats_requests)


@pytest.mark.parametrize("name", [*NAMES.values(), *GAUGES])
def test_a_missing_name_is_a_fault_with_that_name(name: str) -> None:
    without = b"\n".join(line for line in METRICS.splitlines() if not line.startswith(name.encode()))
    with pytest.raises(StatsUnavailable, match=f"/metrics has no {name}"):
        parse(without)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (b"<html>", "/version is not JSON"),
        (b"[" * 3000, "/version is nested deeper than 200"),
        (b"[]", "/version is no object"),
        (b'{"version": 1}', "/version has no text version"),
    ],
)
def test_an_answer_without_a_version_is_a_fault(version: bytes, message: str) -> None:
    with pytest.raises(StatsUnavailable, match=message):
        parse(version=version)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'num_gpu_blocks="22"', b'num_gpu_blocks="None"', "has no numbers block_size and num_gpu_blocks"),
        (b'running{engine="0",model_name="model"} 0.0', b'running{engine="0",model_name="model"} NaN', "is nan"),
        (b'running{engine="0",model_name="model"} 0.0', b'running{engine="0",model_name="model"} 1e9', "running"),
    ],
)
def test_numbers_that_cannot_be_are_faults(old: bytes, new: bytes, message: str) -> None:
    assert METRICS.count(old) == 1
    with pytest.raises(StatsUnavailable, match=message):
        parse(METRICS.replace(old, new))
