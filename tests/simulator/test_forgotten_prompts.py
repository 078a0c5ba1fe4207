"""What the law learns of requests that come no more: it is forgotten in minutes, and sizes no fleet for long."""

from dataclasses import replace
from heapq import merge

import pytest
from tests.simulator.test_control_gates import LARGE, STARTUP, late, spec

from paternoster_simulator.arrivals import constant_rate, generate_requests
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.workload import Limits

pytestmark = pytest.mark.timeout(600)

PROMPT_TOKENS = 100_000
BEGIN = 60.0
FORGOTTEN_SECONDS = 420.0
"""The most that 16 runs took, of five to twenty minutes of long prompts; their median was 330."""
SETTLED_SECONDS = 300.0
"""After which a fleet of nothing but chats has the replicas that it keeps."""
PROFILE = LARGE.model_copy(update={"max_model_len": 131_072, "startup": STARTUP})


def run(long_prompts: float, end: float, duration: float, seed: int) -> SimulationOutcome:
    """Five conversations a second; until ``end`` ``long_prompts`` a second come beside them."""
    manifest = spec(
        autoscaling={"minReplicas": 1, "maxReplicas": 16},
        engine={"maxBatchedTokens": 2048, "maxModelLen": PROFILE.max_model_len},
        slo={"ttftP95Milliseconds": 2000, "itlP95Milliseconds": 100},
    )
    chats = generate_requests(constant_rate(5.0), duration=duration, seed=seed, limits=Limits(max_total=8192))
    drawn = generate_requests(constant_rate(long_prompts), duration=end - BEGIN, seed=seed + 1) if long_prompts else ()
    beside = (
        replace(row, arrival_s=BEGIN + row.arrival_s, prompt_tokens=PROMPT_TOKENS, output_tokens=200) for row in drawn
    )
    return simulate_fleet(
        PROFILE,
        merge(chats, beside, key=lambda row: row.arrival_s),
        LawPolicy.from_spec(manifest, PROFILE),
        start_replicas=2,
        duration=duration,
        seed=seed,
        settings=FleetSettings.from_spec(manifest, PROFILE),
    )


def wanted_at(outcome: SimulationOutcome, second: float) -> int:
    series = outcome.series
    return next(wanted for time, wanted in zip(series.time, series.wanted, strict=True) if time >= second)


@pytest.mark.parametrize(("minutes", "seed"), [(10, 0), (5, 1)])
def test_long_prompts_are_forgotten_in_seven_minutes(minutes: int, seed: int) -> None:
    """The fleet that served them is, seven minutes after the last, at most one replica larger than without them."""
    end = BEGIN + 60 * minutes
    after = end + FORGOTTEN_SECONDS
    outcome, never = run(0.1, end, end + 600, seed), run(0.0, end, SETTLED_SECONDS, seed)
    assert wanted_at(outcome, end) >= 6, "they took more replicas while they came"
    assert max(wanted_at(outcome, after + more) for more in range(0, 180, 15)) <= never.series.wanted[-1] + 1
    assert late(outcome, end + 300, end + 600) < 0.02
