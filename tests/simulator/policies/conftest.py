"""A fleet as a policy sees it, and a policy's actions over time."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from paternoster_contract.stats import EngineState, EngineStats
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.policy import Policy
from peer_policies.engine_facts import EngineFacts

MakeStats = Callable[..., EngineStats]
MakeObservation = Callable[..., Observation]
Play = Callable[..., list[int]]


@pytest.fixture
def stats() -> MakeStats:
    """One engine: 1,000 blocks of 16 tokens; names replace numbers."""

    def make(**numbers: Any) -> EngineStats:
        idle = dict.fromkeys(
            (
                *(
                    "running",
                    "waiting",
                    "kv_blocks_used",
                    "kv_blocks_cached",
                    "requests_total",
                    "requests_finished_total",
                ),
                *("requests_rejected_total", "requests_preempted_total", "preemptions_total", "prompt_tokens_total"),
                *("cached_prompt_tokens_total", "generation_tokens_total", "computed_tokens_total"),
                *("recomputed_tokens_total", "queue_count_total"),
            ),
            0,
        )
        always = {
            "instance": "i",
            "model": "m",
            "state": EngineState.READY,
            "started_at": 0.0,
            "time": 0.0,
            "last_tick_age_seconds": 0.0,
            "capacity": 64,
            "live_cap": 64,
            "kv_block_size": 16,
            "kv_blocks": 1000,
            "kv_projected_peak": 0.0,
            "queue_seconds_total": 0.0,
        }
        return EngineStats(**{**idle, **always, **numbers})

    return make


@pytest.fixture
def observe() -> MakeObservation:
    """One moment: ``engines`` serve; ``replicas`` are desired, by default as many as serve."""

    def make(
        now: float, engines: Sequence[EngineStats] = (), *, replicas: int | None = None, **rest: int
    ) -> Observation:
        pods = {f"pod-{i}": engine for i, engine in enumerate(engines)}
        desired = len(pods) if replicas is None else replicas
        pending = tuple(f"new-{i}" for i in range(max(0, desired - len(pods))))
        return Observation(now, desired, tuple(pods), pending, (), pods, **rest)

    return make


@pytest.fixture
def play(observe: MakeObservation, stats: MakeStats) -> Play:
    """Replicas after each observation of a fleet that obeys at once and whose engines all look like ``engine(now)``."""

    def run(
        policy: Policy,
        seconds: float,
        engine: Callable[[float], EngineStats] | None = None,
        *,
        replicas: int,
        in_flight: Callable[[float], int] = lambda _: 0,
    ) -> list[int]:
        now, history = 0.0, []
        while now <= seconds:
            engines = [engine(now) if engine else stats()] * replicas
            replicas = policy.decide(observe(now, engines, in_flight=in_flight(now))).replicas
            history.append(replicas)
            now += policy.period_seconds
        return history

    return run


@pytest.fixture
def facts() -> EngineFacts:
    """An engine whose step takes 10 ms, 0.1 ms a prompt token, 0.1 ms a sequence and 1 us a KV token."""
    return EngineFacts(
        max_num_seqs=64,
        max_batched_tokens=512,
        fixed_seconds=0.01,
        per_prefill_token_seconds=1e-4,
        per_decode_sequence_seconds=1e-4,
        per_kv_token_seconds=1e-6,
        per_prefill_pair_seconds=0.0,
        ttft_seconds=0.5,
        itl_seconds=0.05,
    )
