"""What the operator reads of a simulated replica: all that its scheduler counts, or what another engine reports."""

from collections.abc import Mapping
from typing import Any

from paternoster_contract.stats import EngineState, EngineStats
from paternoster_simulator.profile import EngineName

_UNREPORTED_BY_VLLM: Mapping[str, Any] = {
    "state": EngineState.READY,
    "idle_seconds": None,
    "batch": None,
    "kv_blocks_cached": 0,
    "kv_projected_peak": 0.0,
}
"""Values that the adapter of vLLM has for what vLLM and its plugin do not report."""


def report_stats(engine: EngineName, stats: EngineStats) -> EngineStats:
    """``stats`` as the operator would read them of an engine of this type."""
    if engine == "Paternoster":
        return stats
    here = stats.requests_finished_total + stats.running + stats.waiting
    counts = {
        # vLLM counts no arrivals, a refusal only for want of a place, and the wait of a request once it has ended.
        "requests_total": here,
        "requests_rejected_total": stats.requests_rejected_full_total,
        "queue_count_total": stats.requests_finished_total,
    }
    return stats.model_copy(update={**_UNREPORTED_BY_VLLM, **counts})
