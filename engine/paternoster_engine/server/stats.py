"""The engine's numbers as the operator reads them."""

import time

from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.stats import EngineStats
from paternoster_engine.server.state import ServerState


def build_stats(state: ServerState) -> EngineStats:
    """Read without a stop of the engine."""
    served = state.served
    first, between = served.histograms.first_tokens, served.histograms.inter_tokens
    return EngineStats(
        instance=state.instance,
        model=served.name,
        state=state.phase,
        started_at=state.started_at,
        start_seconds=dict(served.start_seconds),
        time=time.time(),
        last_tick_age_seconds=served.loop.last_tick_age,
        idle_seconds=served.loop.idle_seconds,
        first_token_seconds_total=first.seconds,
        first_token_count_total=first.count,
        inter_token_seconds_total=between.seconds,
        inter_token_count_total=between.count,
        default_parameters=DefaultParameters.model_validate(served.sampling_defaults.list_set_values()),
        **served.scheduler.build_stats(),
    )
