"""A vLLM that runs without the operator's plugin, read by its own ``/version`` and ``/metrics``; nothing steers it."""

import re
from collections.abc import Sequence

from pydantic import ValidationError

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.stats import EngineStats, Unreported
from paternoster_operator.engines.adapter import VALUES_WITHOUT_LIMITS, LimitsCall, StatsRequest, StatsUnavailable
from paternoster_operator.engines.answers import (
    LONGEST_METRICS,
    Sample,
    read_object,
    read_samples,
)
from paternoster_operator.engines.vllm_arguments import VllmKind
from paternoster_operator.engines.vllm_metrics import READ, read_metrics

LONGEST_VERSION = 4096
"""Bytes of the answer to ``/version``."""
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
KV_USAGE, KV_CACHE = "vllm:kv_cache_usage_perc", "vllm:cache_config_info"
GAUGES = (RUNNING, WAITING, KV_USAGE, KV_CACHE)
"""Read beside the counters, which are read of a vLLM with the plugin, too."""
_WHOLE = re.compile(r"[0-9]{1,15}")
_UNREPORTED = (Unreported.LIMITS, Unreported.RECOMPUTED_TOKENS, Unreported.STEPS)


class VllmWithoutPlugin:
    """Counts of requests, tokens, preemptions and KV blocks; no limits, no steps, no tokens computed again."""

    kind = VllmKind()
    without_limits = None
    stats_requests = (
        StatsRequest("/version", LONGEST_VERSION),
        StatsRequest("/metrics", LONGEST_METRICS, samples=READ.union(GAUGES)),
    )

    def parse_stats(self, answers: Sequence[bytes], now: float) -> EngineStats:
        version = _read_version(answers[0])
        metrics = read_metrics(answers[1])
        samples: dict[str, list[Sample]] = {name: [] for name in GAUGES}
        for sample in read_samples(answers[1], GAUGES):
            samples[sample.name].append(sample)
        missing = [name for name, found in samples.items() if not found]
        if missing:
            raise StatsUnavailable(f"/metrics has no {', '.join(missing)}")
        totals = {name: sum(sample.value for sample in found) for name, found in samples.items()}
        block_size, blocks = _read_pool(samples[KV_CACHE])
        usage = min(totals[KV_USAGE] / len(samples[KV_USAGE]), 1.0)
        computed = metrics.counters["prompt_tokens_total"] - metrics.counters["cached_prompt_tokens_total"]
        document = {
            **metrics.counters,
            **VALUES_WITHOUT_LIMITS,
            "model": metrics.model,
            "engine_version": version,
            "time": now,
            "running": int(totals[RUNNING]),
            "waiting": int(totals[WAITING]),
            "kv_block_size": block_size,
            "kv_blocks": blocks,
            "kv_blocks_used": round(usage * blocks),
            # It counts no arrivals; gauges may be older than counters, so that a sum of both could fall.
            "requests_total": metrics.counters["first_token_count_total"],
            # Its histogram of preemptions a request lacks those that run still, and those that their clients abandoned.
            "requests_preempted_total": metrics.counters["preemptions_total"],
            "computed_tokens_total": max(computed, 0) + metrics.counters["generation_tokens_total"],
            "recomputed_tokens_total": 0,
            "unreported": _UNREPORTED,
        }
        try:
            return EngineStats.model_validate(document)
        except ValidationError as error:
            raise StatsUnavailable.from_validation(error) from None

    def limits_call(self, limits: LiveConfigPatch) -> LimitsCall | None:
        """None: no call moves them."""
        return None


def _read_pool(samples: Sequence[Sample]) -> tuple[int, int]:
    """Tokens of a block, and blocks of all engines of one vLLM."""
    sizes, blocks = ([sample.labels.get(name, "") for sample in samples] for name in ("block_size", "num_gpu_blocks"))
    if not all(_WHOLE.fullmatch(text) for text in (*sizes, *blocks)):
        raise StatsUnavailable(f"{KV_CACHE} has no numbers block_size and num_gpu_blocks")
    return max(map(int, sizes)), sum(map(int, blocks))


def _read_version(answer: bytes) -> str:
    version = read_object(answer, "/version").get("version")
    if not isinstance(version, str):
        raise StatsUnavailable("/version has no text version")
    return version[:60]
