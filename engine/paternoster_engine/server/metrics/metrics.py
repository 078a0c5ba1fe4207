"""Prometheus exposition of what the contract declares, under our names and, if wanted, vLLM's."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from paternoster_contract.access.identity import Lane
from paternoster_contract.metrics import ENGINE_METRICS, MODEL_LABEL
from paternoster_contract.metrics import Metric as Declared
from paternoster_contract.settings.memory import MemorySettings
from paternoster_contract.stats import StartPart
from paternoster_engine.core.drafting.draft_state import MAX_PROPOSED
from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.kv.block_residency import Distribution
from paternoster_engine.core.request import FinishReason, RequestStatus
from paternoster_engine.core.speculation import PROPOSERS
from paternoster_engine.server.adapters import AdapterStore
from paternoster_engine.server.loop import EngineLoop
from paternoster_engine.server.metrics.histograms import Histograms
from paternoster_engine.server.text_chains.feed import TextChainFeed
from paternoster_http.open_requests import RESOURCES, refusals

Values = Mapping[tuple[str, ...], float]
"""Label values -> number; the empty tuple where a metric has no labels of its own."""

REJECTION_REASONS = sorted(kind.reason for kind in AdmissionError.__subclasses__())


class EngineCollector(Collector):
    """Reads the scheduler's numbers when it is scraped; the engine's thread does nothing for it."""

    def __init__(
        self,
        loop: EngineLoop,
        histograms: Histograms,
        model: str,
        start_seconds: Mapping[StartPart, float],
        *,
        vllm_aliases: bool,
        memory: MemorySettings | None = None,
        text_chains: TextChainFeed | None = None,
        adapters: AdapterStore | None = None,
    ) -> None:
        """``memory``: of the engine's arguments, for what the scheduler does not know of; their defaults if None."""
        self._loop = loop
        self._histograms = histograms
        self._model = model
        self._start_seconds = start_seconds
        self._vllm_aliases = vllm_aliases
        self._text_chains = text_chains
        self._adapters = adapters
        self._memory = MemorySettings() if memory is None else memory

    def collect(self) -> Iterator[Metric]:
        grammars = self._histograms.grammars.copy()
        values: dict[str, Values] = {
            **_gauge_values(self._loop),
            **_counter_values(self._loop),
            **_text_values(self._text_chains),
            **_adapter_values(self._adapters),
            "lora_requests_info": _lora_requests(self._loop, self._adapters),
            "start_seconds": {(part,): seconds for part, seconds in self._start_seconds.items()},
            "share_refusals": {(resource,): refusals[resource] for resource in RESOURCES},
            "cache_config_info": {_cache_config(self._loop, self._memory): 1},
            "grammars": {(result,): grammars[result] for result in ("compiled", "cached", "refused")},
        }
        residency = _block_residency(self._loop)
        for declared in ENGINE_METRICS:
            if declared.key in residency:
                family = self._histogram_family(declared, residency[declared.key])
            elif declared.kind == "histogram":
                family = self._histograms.collect(declared.key)
            else:
                family = self._value_family(declared, values[declared.key])
            yield family
            if self._vllm_aliases and declared.vllm is not None:
                yield _vllm_alias(family, declared.vllm)

    def _value_family(self, declared: Declared, values: Values) -> Metric:
        kind = CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily
        family = kind(declared.name, declared.help, labels=[MODEL_LABEL, *declared.labels])
        for label_values, value in values.items():
            family.add_metric([self._model, *label_values], value)
        return family

    def _histogram_family(self, declared: Declared, observed: Distribution) -> Metric:
        family = HistogramMetricFamily(declared.name, declared.help, labels=[MODEL_LABEL])
        edges = [*map(floatToGoString, observed.edges), "+Inf"]
        buckets = list(zip(edges, accumulate(observed.counts.copy()), strict=True))
        family.add_metric([self._model], buckets, observed.total)
        return family


def _block_residency(loop: EngineLoop) -> dict[str, Distribution]:
    residency = loop.engine.scheduler.pool.residency
    return {
        "kv_block_lifetime_seconds": residency.lifetime,
        "kv_block_idle_before_evict_seconds": residency.idle_before_evict,
        "kv_block_reuse_gap_seconds": residency.reuse_gap,
    }


def _cache_config(loop: EngineLoop, memory: MemorySettings) -> tuple[str, ...]:
    """Values of ``CACHE_CONFIG_LABELS``, spelled as vLLM spells them."""
    scheduler = loop.engine.scheduler
    return (
        str(scheduler.config.block_size),
        memory.kv_cache_dtype,
        str(scheduler.config.prefix_cache),
        str(memory.gpu_memory_utilization),
        str(scheduler.config.host_blocks),
        str(scheduler.kv.build_stats()["kv_blocks"]),
    )


def _gauge_values(loop: EngineLoop) -> dict[str, Values]:
    scheduler, pool = loop.engine.scheduler, loop.engine.scheduler.pool
    batch = scheduler.lanes[Lane.BATCH]
    # tuple() copies a deque in one go; a loop over it would see the engine's thread change it.
    waiting = tuple(scheduler.waiting)
    host_blocks, deferred = scheduler.config.host_blocks, min(scheduler.num_deferred, len(waiting))
    gauges = _without_labels(
        {
            "requests_running": len(scheduler.running),
            "requests_waiting": len(waiting),
            "requests_preempted_waiting": sum(request.status is RequestStatus.PREEMPTED for request in waiting),
            "live_cap": scheduler.live_cap,
            "capacity": scheduler.config.max_num_seqs,
            "token_budget": scheduler.token_budget,
            "max_batched_tokens": scheduler.config.max_batched_tokens,
            "kv_cache_usage_ratio": (pool.num_used - pool.num_cold_used) / pool.num_blocks,
            "kv_cached_ratio": pool.num_cached / pool.num_blocks,
            "kv_projected_peak_ratio": scheduler.projected_peak(),
            "host_kv_usage_ratio": 1 - scheduler.swap.num_free / host_blocks if host_blocks else 0.0,
            "loop_heartbeat_timestamp_seconds": time.time() - loop.last_tick_age,
            "batch_requests_running": len(batch.running),
            "batch_requests_waiting": batch.queue.count_waiting(),
            "batch_kv_cache_usage_ratio": pool.num_cold_used / pool.num_blocks,
        }
    )
    by_reason: Values = {("capacity",): len(waiting) - deferred, ("deferred",): deferred}
    return {**gauges, "requests_waiting_by_reason": by_reason}


def _counter_values(loop: EngineLoop) -> dict[str, Values]:
    counters, seconds = loop.engine.scheduler.counters, loop.engine.seconds
    finished, rejected = counters.finished.copy(), counters.rejected.copy()
    batch = loop.engine.scheduler.lanes[Lane.BATCH].counters
    return {
        **_without_labels(
            {
                "requests": counters.requests,
                "corrupted_requests": counters.corrupted_requests,
                "requests_preempted": counters.requests_preempted,
                "preemptions": counters.preemptions,
                "displacements": counters.priority_preemptions,
                "prefix_waits": counters.prefix_waits,
                "prompt_tokens": counters.prompt_tokens,
                "prompt_tokens_cached": counters.cached_prompt_tokens,
                "generation_tokens": counters.generation_tokens,
                "prefix_cache_queries": counters.prefix_queries,
                "prefix_cache_hits": counters.prefix_hits,
                "computed_tokens": counters.computed_tokens,
                "recomputed_tokens": counters.recomputed_tokens,
                "live_cap_changes": counters.live_cap_changes,
                "token_budget_changes": counters.token_budget_changes,
                "batch_requests": batch.requests,
                "batch_requests_finished": batch.finished.copy().total(),
                "batch_preemptions": batch.preemptions,
                "batch_generation_tokens": batch.generation_tokens,
                "batch_computed_tokens": batch.computed_tokens,
                "batch_recomputed_tokens": batch.recomputed_tokens,
            }
        ),
        "prompt_tokens_by_source": {
            ("local_compute",): counters.uncached_prompt_tokens,
            ("local_cache_hit",): counters.cached_prompt_tokens,
            # vLLM's third source: no other engine's blocks are fetched here.
            ("external_kv_transfer",): 0,
        },
        # Every reason from the start: a counter that appears with its first event hides that event from rate().
        "requests_finished": {(reason,): finished[reason] for reason in FinishReason},
        "requests_rejected": {(reason,): rejected[reason] for reason in REJECTION_REASONS},
        "spec_decode_num_drafts": _of_proposers(counters.proposals),
        "spec_decode_num_draft_tokens": _of_proposers(counters.proposed_tokens),
        "spec_decode_num_accepted_tokens": _of_proposers(counters.accepted_tokens),
        "spec_decode_num_accepted_tokens_per_pos": {
            (str(place),): counters.accepted_at[place] for place in range(MAX_PROPOSED)
        },
        "swapped_blocks": {("out",): counters.swapped_out_blocks, ("in",): counters.swapped_in_blocks},
        "stage_seconds": {
            ("schedule",): seconds.schedule,
            ("forward",): seconds.forward,
            ("update",): seconds.update,
        },
    }


def _text_values(feed: TextChainFeed | None) -> dict[str, Values]:
    values = (0, 0, 0) if feed is None else (len(feed.resident), feed.num_subscribers, feed.events_total)
    return _without_labels(
        dict(zip(("text_pieces", "text_chain_readers", "text_pieces_reported"), values, strict=True))
    )


def _adapter_values(adapters: AdapterStore | None) -> dict[str, Values]:
    counts: Counter[str] = Counter() if adapters is None else adapters.counts
    return _without_labels(
        {
            "adapter_resident_bytes": 0 if adapters is None else adapters.resident_bytes,
            "adapter_loads": counts["loads"],
            "adapter_evictions": counts["evictions"],
            "adapter_waits": counts["waits"],
        }
    )


def _lora_requests(loop: EngineLoop, adapters: AdapterStore | None) -> Values:
    """Counts as vLLM has them: adapters that may be in memory, those of running and waiting requests, and when."""
    if adapters is None or not adapters.max_bytes:
        return {}
    lanes = loop.engine.scheduler.lanes
    running, waiting = (
        adapters.find_names(request.spec.adapter.digest for request in requests if request.spec.adapter is not None)
        for requests in (
            [request for lane in lanes for request in tuple(lane.running)],
            [request for lane in lanes for request in tuple(lane.queue.waiting)],
        )
    )
    waiting = sorted({*waiting, *adapters.find_names(adapters.awaited)})
    return {(str(adapters.most_resident), ",".join(running), ",".join(waiting)): time.time()}


def _of_proposers(counts: Counter[str]) -> Values:
    return {(proposer,): counts[proposer] for proposer in PROPOSERS}


def _without_labels(values: Mapping[str, float]) -> dict[str, Values]:
    return {key: {(): value} for key, value in values.items()}


def _vllm_alias(family: Metric, name: str) -> Metric:
    """With the label that vLLM has for one of several engines in a process."""
    alias = Metric(name, family.documentation, family.type)
    alias.samples = [
        sample._replace(name=name + sample.name.removeprefix(family.name), labels={**sample.labels, "engine": "0"})
        for sample in family.samples
    ]
    return alias
