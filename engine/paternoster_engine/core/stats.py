"""What a scheduler tells of itself in ``/stats``: the part that needs neither a process nor a clock."""

from typing import Any

from paternoster_engine.core.scheduler import Scheduler


def scheduler_stats(scheduler: Scheduler, *, ticks_per_second: int = 1) -> dict[str, Any]:
    """Gauges and counters by their names in ``paternoster_contract.stats.EngineStats``.

    May be read while another thread steps the scheduler: each number is right, but they may be of two neighbouring
    steps. ``ticks_per_second`` is the unit of the times that the scheduler was given.
    """
    counters, pool = scheduler.counters, scheduler.pool
    return {
        "capacity": scheduler.config.max_num_seqs,
        "live_cap": scheduler.live_cap,
        "max_batched_tokens": scheduler.config.max_batched_tokens,
        "token_budget": scheduler.token_budget,
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting),
        "kv_block_size": scheduler.config.block_size,
        "kv_blocks": pool.num_blocks,
        "kv_blocks_used": pool.num_used,
        "kv_blocks_cached": pool.num_cached,
        "kv_projected_peak": scheduler.projected_peak(),
        "requests_total": counters.requests,
        "requests_finished_total": sum(counters.finished.copy().values()),
        "requests_rejected_total": sum(counters.rejected.copy().values()),
        "requests_preempted_total": counters.requests_preempted,
        "preemptions_total": counters.preemptions,
        "prompt_tokens_total": counters.prompt_tokens,
        "cached_prompt_tokens_total": counters.cached_prompt_tokens,
        "generation_tokens_total": counters.generation_tokens,
        "computed_tokens_total": counters.computed_tokens,
        "recomputed_tokens_total": counters.recomputed_tokens,
        "queue_seconds_total": counters.queue_seconds / ticks_per_second,
        "queue_count_total": counters.queue_count,
        "step_sums": counters.steps.in_seconds(ticks_per_second),
    }
