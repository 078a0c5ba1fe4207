"""SGLang: ``/metrics`` for its numbers, ``/server_info`` for its limits, ``set_internal_state`` for its live cap."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.stats import EngineState, EngineStats, Unreported
from paternoster_operator.engines.adapter import LimitsCall, StatsRequest, StatsUnavailable
from paternoster_operator.engines.answers import LONGEST_METRICS, read_object, sum_samples
from paternoster_operator.engines.sglang_arguments import SglangKind

VERSIONS = ("0.5",)
"""Minor versions whose names these are."""
GAUGES: Mapping[str, str] = {
    "running": "sglang:num_running_reqs",
    "waiting": "sglang:num_queue_reqs",
    "kv_blocks": "sglang:max_total_num_tokens",
    "kv_blocks_used": "sglang:num_used_tokens",
}
"""They are there from the first request on, that of the start; a block of KV is counted as a token."""
COUNTERS: Mapping[str, str] = {
    "requests_finished_total": "sglang:num_requests_total",
    "preemptions_total": "sglang:num_retracted_requests_total",
    "prompt_tokens_total": "sglang:prompt_tokens_total",
    "cached_prompt_tokens_total": "sglang:cached_tokens_total",
    "generation_tokens_total": "sglang:generation_tokens_total",
    "queue_seconds_total": "sglang:queue_time_seconds_sum",
    "queue_count_total": "sglang:queue_time_seconds_count",
    "first_token_seconds_total": "sglang:time_to_first_token_seconds_sum",
    "first_token_count_total": "sglang:time_to_first_token_seconds_count",
    "inter_token_seconds_total": "sglang:inter_token_latency_seconds_sum",
    "inter_token_count_total": "sglang:inter_token_latency_seconds_count",
}
"""Each is there once it has counted something."""
_LOST = ("sglang:num_retracted_input_tokens_total", "sglang:num_retracted_output_tokens_total")
_READ = frozenset({*GAUGES.values(), *COUNTERS.values(), *_LOST})
LIVE_CAP = "pp_max_micro_batch_size"
_CAPACITY = "effective_max_running_requests_per_dp"
LONGEST_INFO = 2**20
"""Bytes of ``/server_info``: all arguments, and the state of each scheduler."""
MAX_INFO_VALUES = 16_384
"""Values and names of it."""


class SglangAdapter:
    """A retraction is SGLang's preemption: it counts these, and not the requests, so that one may count twice."""

    kind = SglangKind()
    without_limits = None
    stats_requests = (
        StatsRequest("/metrics", LONGEST_METRICS, samples=_READ),
        StatsRequest("/server_info", LONGEST_INFO),
    )

    def parse_stats(self, answers: Sequence[bytes], now: float) -> EngineStats:
        info = _read_info(answers[1])
        found = sum_samples(answers[0], _READ)
        missing = [name for name in GAUGES.values() if name not in found]
        if missing:
            raise StatsUnavailable(f"/metrics has no {', '.join(missing)}")
        counts = {field: _read_number(field, found.get(name, 0.0)) for field, name in COUNTERS.items()}
        here = {field: int(found[name]) for field, name in GAUGES.items()}
        recomputed = int(sum(found.get(name, 0.0) for name in _LOST))
        computed = counts["prompt_tokens_total"] - counts["cached_prompt_tokens_total"]
        document = {
            **counts,
            **here,
            "instance": "",
            "model": "",
            "engine_version": info["version"],
            "state": EngineState.READY,
            "started_at": 0,
            "time": now,
            # Its scheduler answered for /server_info.
            "last_tick_age_seconds": 0,
            "capacity": info[_CAPACITY],
            "live_cap": info[LIVE_CAP],
            "kv_block_size": 1,
            "kv_blocks_cached": 0,
            "kv_projected_peak": 0,
            # It counts no arrivals, and its gauges are older than its counters: a sum of both could fall.
            "requests_total": counts["requests_finished_total"],
            "requests_rejected_total": 0,
            "requests_preempted_total": counts["preemptions_total"],
            "computed_tokens_total": max(computed, 0) + counts["generation_tokens_total"] + recomputed,
            "recomputed_tokens_total": recomputed,
            "unreported": (Unreported.STEPS,),
        }
        try:
            return EngineStats.model_validate(document)
        except ValidationError as error:
            raise StatsUnavailable.from_validation(error) from None

    def limits_call(self, limits: LiveConfigPatch) -> LimitsCall | None:
        if limits.live_cap is None:
            return None
        return LimitsCall("POST", "/set_internal_state", {"server_args": {LIVE_CAP: limits.live_cap}}, check_set)


def check_set(answer: bytes) -> None:
    """Raise ``ValueError`` for an answer that is 200 and says that a scheduler refused the value."""
    answered = json.loads(answer)
    if not isinstance(answered, list) or not answered or not all(each is True for each in answered):
        raise ValueError(f"it answered {answer[:100]!r}: must be [true]")


def _read_info(answer: bytes) -> dict[str, Any]:
    """Version, capacity and live cap of ``/server_info``, which has one scheduler's state."""
    document = read_object(answer, "/server_info", MAX_INFO_VALUES)
    version = str(document.get("version", ""))[:60]
    if ".".join(version.split(".")[:2]) not in VERSIONS:
        raise StatsUnavailable(f"SGLang {version!r} has no table of metrics: must be {', '.join(VERSIONS)}")
    states = document.get("internal_states")
    if not isinstance(states, list) or len(states) != 1 or not isinstance(states[0], dict):
        raise StatsUnavailable("/server_info has not the state of one scheduler in internal_states")
    missing = [name for name in (_CAPACITY, LIVE_CAP) if type(states[0].get(name)) is not int]
    if missing:
        raise StatsUnavailable(f"/server_info has no number {', '.join(missing)} in internal_states")
    return {"version": version, **{name: states[0][name] for name in (_CAPACITY, LIVE_CAP)}}


def _read_number(field: str, value: float) -> float:
    """Counts of tokens and requests are whole."""
    return value if field.endswith("seconds_total") else int(value)
