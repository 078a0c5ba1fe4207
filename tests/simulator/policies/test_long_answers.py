"""Replicas that a smaller fleet loses, under answers that take longer than a drain may."""

from functools import cache
from itertools import product

import pytest
from tests.simulator.test_control_gates import PROFILE, SEEDS, changes, run

from paternoster_simulator.arrivals import rate_spike
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.outcome.records import RequestOutcome
from paternoster_traces.synthetic import Workload

LONG = PROFILE.model_copy(update={"kv_blocks": 60_000, "max_model_len": 16_384})
REASONING = Workload(
    prompt=((0.0, 16), (0.5, 200), (1.0, 600)),
    output=((0.0, 200), (0.5, 2000), (1.0, 14_000)),
    rank_correlation=0.0,
    rate=1.0,
    burstiness=1.0,
)
"""Answers that take up to ten minutes, twice as long as ``drain.timeoutSeconds``."""


@cache
def long_answers(seed: int, drain: str) -> SimulationOutcome:
    return run(
        rate_spike(0.1, at=60, seconds=300, factor=8.0), duration=1500, seed=seed, start=4, profile=LONG,
        workload=REASONING, slo={"ttftP95Milliseconds": 2000, "itlP95Milliseconds": 100}, drain={"mode": drain},
    )  # fmt: skip


@pytest.mark.parametrize(("seed", "drain"), [*product(SEEDS, ("HandOver", "Finish"))])
def test_fewer_replicas_cut_no_request(seed: int, drain: str) -> None:
    outcome = long_answers(seed, drain)
    records = outcome.records
    assert records.end_to_end[records.outcome == RequestOutcome.FINISHED].max() > 500
    assert sum(made["action"] == "Down" for made in changes(outcome)) >= 2
    assert outcome.lost == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_that_hand_over_end_sooner_and_lose_no_token(seed: int) -> None:
    finished, handed = (long_answers(seed, drain) for drain in ("Finish", "HandOver"))
    assert handed.replica_hours < finished.replica_hours
    assert handed.totals.computed_tokens > finished.totals.computed_tokens
    tokens = [int(outcome.records.output.sum()) for outcome in (finished, handed)]
    assert tokens[0] == tokens[1] == handed.totals.generation_tokens


def test_a_demand_that_returns_finds_the_drained_replicas() -> None:
    outcome = long_answers(0, "Finish")
    returns = [made["time"] for made in changes(outcome) if 600 < made["time"] < 1400 and made["action"] == "Up"]
    assert len(returns) == 2
    series = outcome.series
    pending = {pods for time, pods in zip(series.time, series.pending, strict=True) if 600 < time < 1400}
    assert pending == {0}, "replicas that were about to go serve again, and none starts"
