"""Fleets whose requests end with their prompts, as those of models that embed: the law sees full steps."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.simulator.small_profile import SMALL

from paternoster_operator.api.manifest import parse_resource
from paternoster_simulator.arrivals import Pattern, generate_requests, rate_spike, rate_step
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.outcome.records import RequestOutcome
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.profile import Startup, StepSeconds
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.synthetic import Workload
from paternoster_traces.trace import TraceRow

PROFILE = SMALL.model_copy(
    update={
        "kv_blocks": 4000,
        "max_num_seqs": 256,
        "max_batched_tokens": 512,
        "step": StepSeconds(
            fixed_seconds=0.02,
            per_prefill_token_seconds=1e-3,
            per_decode_sequence_seconds=0,
            per_kv_token_seconds=0,
        ),
        "startup": Startup(schedule_seconds=1, pull_seconds=9, load_seconds=15, warm_seconds=5),
    }
)
"""A full step takes 0.53 s and about five texts: a replica embeds nine or ten in a second."""
TEXTS = Workload(
    prompt=((0.0, 10), (0.5, 90), (1.0, 250)),
    output=((0.0, 1), (1.0, 1)),
    rank_correlation=0.0,
    rate=1.0,
    burstiness=1.0,
)
SEEDS = range(3)


def run(pattern: Pattern, *, seed: int, duration: float, output: int = 0) -> SimulationOutcome:
    document = {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "embed"},
        "spec": {
            "model": {"source": "package://m"},
            "autoscaling": {"minReplicas": 1, "maxReplicas": 10},
            "concurrency": {"mode": "Auto"},
        },
    }
    manifest = parse_resource(document).spec
    rows: Iterator[TraceRow] = (
        replace(row, output_tokens=output)
        for row in generate_requests(pattern, duration=duration, seed=seed, workload=TEXTS)
    )
    settings = FleetSettings.from_spec(manifest, PROFILE)
    policy = LawPolicy.from_spec(manifest, PROFILE)
    return simulate_fleet(PROFILE, rows, policy, start_replicas=1, duration=duration, seed=seed, settings=settings)


def waited(outcome: SimulationOutcome, begin: float, end: float) -> float:
    """Share of the requests of that time that took longer than 3 s."""
    records = outcome.records
    came = (records.arrival >= begin) & (records.arrival < end)
    return float(np.mean(((records.outcome != RequestOutcome.FINISHED) | (records.end_to_end > 3))[came]))


@pytest.mark.parametrize("output", [0, 1], ids=["vectors", "one token"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_fleet_grows(seed: int, output: int) -> None:
    """From 40 % of one replica to two and a half of them."""
    outcome = run(rate_step(4.0, at=200, factor=6.0), seed=seed, duration=700, output=output)
    series = outcome.series
    assert max(series.wanted[: series.time.index(200)]) <= 2
    assert 3 <= series.wanted[-1] <= 5
    assert waited(outcome, 400, 700) < 0.02
    assert outcome.lost == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_peak_brought_goes_again(seed: int) -> None:
    outcome = run(rate_spike(4.0, at=100, seconds=300, factor=6.0), seed=seed, duration=1800)
    assert max(outcome.series.wanted) >= 3
    assert outcome.series.wanted[-1] <= 2
    assert waited(outcome, 300, 1800) < 0.02
