"""The engine's numbers as the operator reads them."""

import time

from paternoster_contract.stats import EngineStats
from paternoster_engine.server.state import ServerState


def build_stats(state: ServerState) -> EngineStats:
    """Read without a stop of the engine: each number is right, but they may be of two neighbouring steps."""
    served = state.served
    scheduler, counters, pool = served.scheduler, served.scheduler.counters, served.scheduler.pool
    return EngineStats(
        instance=state.instance,
        model=served.name,
        state=state.phase,
        started_at=state.started_at,
        time=time.time(),
        last_tick_age_seconds=served.loop.last_tick_age,
        capacity=scheduler.config.max_num_seqs,
        live_cap=scheduler.live_cap,
        running=len(scheduler.running),
        waiting=len(scheduler.waiting),
        kv_block_size=scheduler.config.block_size,
        kv_blocks=pool.num_blocks,
        kv_blocks_used=pool.num_used,
        kv_blocks_cached=pool.num_cached,
        kv_projected_peak=scheduler.projected_peak(),
        requests_total=counters.requests,
        requests_finished_total=sum(counters.finished.copy().values()),
        requests_rejected_total=sum(counters.rejected.copy().values()),
        requests_preempted_total=counters.requests_preempted,
        preemptions_total=counters.preemptions,
        prompt_tokens_total=counters.prompt_tokens,
        cached_prompt_tokens_total=counters.cached_prompt_tokens,
        generation_tokens_total=counters.generation_tokens,
        computed_tokens_total=counters.computed_tokens,
        recomputed_tokens_total=counters.recomputed_tokens,
        queue_seconds_total=counters.queue_seconds,
        queue_count_total=counters.queue_count,
        first_token_seconds_total=served.distributions.first_tokens.seconds,
        first_token_count_total=served.distributions.first_tokens.count,
        inter_token_seconds_total=served.distributions.inter_tokens.seconds,
        inter_token_count_total=served.distributions.inter_tokens.count,
    )
