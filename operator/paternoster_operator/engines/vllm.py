"""vLLM, with the plugin ``paternoster_vllm`` in its processes.

The plugin counts what ``/metrics`` counts late or not at all (preemptions, steps, tokens computed again), and moves the
limits; ``/metrics`` has the tokens and latencies that the API server sees.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.stats import EngineState, EngineStats, Unreported
from paternoster_operator.engines.adapter import (
    LimitsCall,
    StatsRequest,
    StatsUnavailable,
)
from paternoster_operator.engines.answers import LARGEST_VALUE, LONGEST_METRICS, read_object
from paternoster_operator.engines.vllm_arguments import VllmKind
from paternoster_operator.engines.vllm_metrics import NAMES, READ, read_metrics
from paternoster_operator.engines.vllm_without_plugin import VllmWithoutPlugin

LIMITS_PATH = "/paternoster/limits"
LONGEST_REPORT = 16 * 2**10
"""Bytes of the plugin's answer."""
_FROM_PLUGIN = (
    "instance", "started_at", "capacity", "live_cap", "max_batched_tokens", "token_budget", "max_model_len", "running",
    "waiting", "requests_finished_total", "requests_preempted_total", "preemptions_total", "recomputed_tokens_total",
)  # fmt: skip
_NO_BLOCKS = {"kv_block_size": 1, "kv_blocks": 1, "kv_blocks_used": 0}
"""Numbers that the plugin leaves out where this vLLM keeps its blocks elsewhere; these mean nothing."""
_COUNTED = {
    "scheduled_tokens_total": "generation_tokens_total",
    "requests_finished_total": "requests_finished_total",
    "preemptions_total": "preemptions_total",
}
"""Counters of the plugin, and those of ``/metrics`` that count later: a plugin whose own is 0 then is never called."""
_REFUSED = ("requests_rejected_total", "requests_rejected_full_total")
_HERE = ("requests_finished_total", "running", "waiting")


class VllmAdapter:
    """Any image or program with vLLM and the plugin, of whichever version has what is read of both."""

    kind = VllmKind()
    without_limits = VllmWithoutPlugin()
    stats_requests = (
        StatsRequest(LIMITS_PATH, LONGEST_REPORT, needs_key=True),
        StatsRequest("/metrics", LONGEST_METRICS, samples=READ),
    )

    def parse_stats(self, answers: Sequence[bytes], now: float) -> EngineStats:
        report = read_object(answers[0], "the plugin's answer")
        missing = [name for name in (*_FROM_PLUGIN, *_COUNTED) if name not in report]
        if missing:
            raise StatsUnavailable(f"the plugin's answer has no {', '.join(missing)}")
        metrics = read_metrics(answers[1])
        for name, counted in _COUNTED.items():
            if metrics.counters[counted] and not report[name]:
                other = f"{NAMES[counted]} is {metrics.counters[counted]:g}"
                raise StatsUnavailable(f"the plugin's {name} is 0 where {other}: this vLLM does it in another way")
        refused = _read_count(report, "requests_refused_total")
        # Absent of a plugin of an earlier release, and empty where this vLLM's steps cannot be measured.
        sums = report.get("step_sums") or ()
        has_blocks = _NO_BLOCKS.keys() <= report.keys()
        document = {
            **metrics.counters,
            **{name: report[name] for name in _FROM_PLUGIN},
            **({name: report[name] for name in _NO_BLOCKS} if has_blocks else _NO_BLOCKS),
            **{name: metrics.counters[name] + refused for name in _REFUSED},
            # What arrived is what ended and what is here: neither program counts arrivals.
            "requests_total": sum(_read_count(report, name) for name in _HERE),
            # Absent of a plugin of an earlier release.
            "max_queue_milliseconds": report.get("max_queue_milliseconds"),
            "model": metrics.model,
            "engine_version": str(report.get("version", ""))[:60],
            "state": EngineState.READY,
            "time": now,
            # The core answered between two steps.
            "last_tick_age_seconds": 0,
            "computed_tokens_total": report["scheduled_tokens_total"],
            "kv_blocks_cached": 0,
            "kv_projected_peak": 0,
            "step_sums": sums,
            "unreported": (*(() if sums else (Unreported.STEPS,)), *(() if has_blocks else (Unreported.KV_BLOCKS,))),
        }
        try:
            return EngineStats.model_validate(document)
        except ValidationError as error:
            raise StatsUnavailable.from_validation(error) from None

    def limits_call(self, limits: LiveConfigPatch) -> LimitsCall | None:
        body = limits.model_dump(exclude_none=True, include={"live_cap", "token_budget", "max_queue_milliseconds"})
        return LimitsCall("PATCH", LIMITS_PATH, body) if body else None


def _read_count(report: Mapping[str, Any], name: str) -> int:
    """A number that is added to others; 0 where there is none."""
    value = report.get(name, 0)
    if type(value) is not int or not 0 <= value <= LARGEST_VALUE:
        raise StatsUnavailable(f"the plugin's answer: {name} is no whole number from 0 to 2^53")
    return value
