"""A fleet as a policy sees it, and a scenario of a minute."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from control.scenarios import SCENARIOS, Scenario
from paternoster_contract.stats import EngineState, EngineStats
from paternoster_engine.core.config import SchedulerConfig
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.arrivals import constant_rate
from paternoster_simulator.cost import StepCost
from paternoster_simulator.replica.replica import SimulatedReplica


@pytest.fixture
def engine() -> Callable[..., EngineStats]:
    """An idle engine of the 8B profile; names replace numbers."""
    config = SchedulerConfig(
        max_num_seqs=256,
        max_batched_tokens=8192,
        max_model_len=8192,
        block_size=32,
        num_blocks=13_900,
        watermark_blocks=139,
        max_queued_requests=1024,
        prefix_cache=False,
    )
    idle = SimulatedReplica("pod", config, StepCost.from_seconds(fixed_seconds=0.006)).build_stats(0)

    def make(**numbers: Any) -> EngineStats:
        return idle.model_copy(update={"state": EngineState.READY, **numbers})

    return make


@pytest.fixture
def observe() -> Callable[..., Observation]:
    def make(now: float, engines: Sequence[EngineStats], **rest: Any) -> Observation:
        pods = {f"pod-{i}": stats for i, stats in enumerate(engines)}
        return Observation(now, len(pods), tuple(pods), (), (), pods, **rest)

    return make


@pytest.fixture
def minute() -> Scenario:
    """Two replicas for a minute, one request a second, the first 20 seconds to warm up."""
    bursts = SCENARIOS["bursts"]
    traffic = replace(bursts.traffic, pattern=lambda _: constant_rate(1.0))
    return replace(bursts, duration=60.0, warm_seconds=20.0, start_replicas=2, traffic=traffic)
