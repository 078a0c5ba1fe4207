"""What the law must do to a fleet whatever the seed: settle, recover, hold on silence, stay in bounds.

Each gate is a whole fleet in virtual time: the real scheduler, the real routing and the real law.
"""

import os
import random
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.simulator.small_profile import SMALL

from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.arrivals import Pattern, constant_rate, generate_requests, rate_bursts, rate_spike, rate_step
from paternoster_simulator.failures import ClockJumps, EngineRestarts, Fault, MetricsBlackout, ReplicaDies, SlowStartups
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.outcome.records import RequestOutcome
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.profile import Objective, Profile, Startup, load_profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.synthetic import AZURE_CONVERSATION, Workload
from paternoster_traces.workload import Limits

# Some are minutes long on a busy machine; files that ask for more time than others begin first.
pytestmark = pytest.mark.timeout(600)

SEEDS = range(2)
STARTUP = Startup(schedule_seconds=1, pull_seconds=9, load_seconds=15, warm_seconds=5)
STARTUP_SECONDS = 30
PROFILE = SMALL.model_copy(
    update={
        "gpus_per_replica": 1,
        "usd_per_gpu_hour": 1.0,
        "kv_blocks": 2000,
        "max_num_seqs": 48,
        "max_batched_tokens": 1024,
        "max_model_len": 1024,
        "startup": STARTUP,
        "objective": Objective(ttft_ms=2000, itl_ms=60),
    }
)
"""A replica answers about four requests a second within the objective."""
LARGE = load_profile("llama-3-70b-h200x2")
CHAT = Workload(
    prompt=((0.0, 16), (0.5, 200), (1.0, 600)),
    output=((0.0, 4), (0.5, 100), (1.0, 300)),
    rank_correlation=0.0,
    rate=1.0,
    burstiness=1.0,
)

CODE = Workload(
    prompt=((0.0, 100), (0.5, 700), (1.0, 1000)),
    output=((0.0, 2), (0.5, 14), (1.0, 24)),
    rank_correlation=0.0,
    rate=1.0,
    burstiness=1.0,
)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """One of two, for which each gate holds; in CI always the same, so that a change is judged by itself."""
    fixed = SEEDS[zlib.crc32(request.node.name.encode()) % len(SEEDS)]
    return fixed if "CI" in os.environ else random.SystemRandom().choice(SEEDS)


def spec(**changes: Any) -> LLMDeploymentSpec:
    document = {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "gate"},
        "spec": {
            "model": {"source": "package://m"},
            "autoscaling": {"minReplicas": 1, "maxReplicas": 10},
            "concurrency": {"mode": "Auto", "min": 2},
            "slo": {"ttftP95Milliseconds": 2000, "itlP95Milliseconds": 60},
            **changes,
        },
    }
    return parse_resource(document).spec


def run(
    pattern: Pattern,
    *,
    duration: float,
    seed: int,
    start: int,
    faults: Sequence[Fault] = (),
    profile: Profile = PROFILE,
    workload: Workload = CHAT,
    **changes: Any,
) -> SimulationOutcome:
    manifest = spec(**changes)
    limits = Limits(max_total=profile.max_model_len)
    rows = generate_requests(pattern, duration=duration, seed=seed, limits=limits, workload=workload)
    return simulate_fleet(
        profile,
        rows,
        LawPolicy.from_spec(manifest, profile),
        start_replicas=start,
        duration=duration,
        seed=seed,
        faults=faults,
        settings=FleetSettings.from_spec(manifest, profile),
    )


def changes(outcome: SimulationOutcome, loop: str = "Replicas") -> list[Mapping[str, Any]]:
    return [made for made in outcome.decisions if made["loop"] == loop and made["action"] != "Hold"]


def waiting_after(outcome: SimulationOutcome, second: float) -> int:
    """Most requests that waited at any observation after ``second``."""
    return max(
        (waits + held for time, waits, held in zip(
            outcome.series.time, outcome.series.waiting, outcome.series.held, strict=True
        ) if time >= second),
        default=0,
    )  # fmt: skip


def late(outcome: SimulationOutcome, begin: float, end: float) -> float:
    """Share of the requests that arrived in that time and had to wait longer than the objective allows."""
    records = outcome.records
    came = (records.arrival >= begin) & (records.arrival < end)
    missed = (records.outcome != RequestOutcome.FINISHED) | (records.ttft * 1000 > outcome.objective.ttft_ms)
    return float(np.mean(missed[came]))


@pytest.mark.parametrize(("rate", "seed"), [(2.0, 0), (10.0, 1), (21.0, 0)])
def test_constant_load_settles(rate: float, seed: int) -> None:
    """At most one change of direction in any window of five minutes, and a fleet that carries the load."""
    outcome = run(constant_rate(rate), duration=900, seed=seed, start=3)
    made = changes(outcome)
    turns = [b["time"] for a, b in pairwise(made) if a["action"] != b["action"]]
    assert all(later - earlier > 300 for earlier, later in pairwise(turns)), [(m["time"], m["message"]) for m in made]
    assert late(outcome, 500, 900) < 0.02
    assert outcome.lost == 0


def test_a_new_fleet_does_not_take_prompts_for_all_there_is_to_do(seed: int) -> None:
    """Conversations on a 70B model: in the first seconds prompts are read, and most answers are yet to come."""
    outcome = run(
        constant_rate(10.0), duration=180, seed=seed, start=4, workload=AZURE_CONVERSATION, profile=LARGE,
        autoscaling={"minReplicas": 1, "maxReplicas": 30}, engine={"maxBatchedTokens": 2048},
        slo={"ttftP95Milliseconds": 2000, "itlP95Milliseconds": 50},
    )  # fmt: skip
    assert max(outcome.series.wanted) <= 6


def in_pace(outcome: SimulationOutcome) -> float:
    """Share of the finished requests whose tokens came within the objective, from the third minute on."""
    records = outcome.records
    counted = (records.outcome == RequestOutcome.FINISHED) & (records.arrival >= 120)
    return float(np.mean(records.itl[counted] * 1000 <= outcome.objective.itl_ms))


def test_long_prompts_make_steps_smaller_and_not_the_cap(seed: int) -> None:
    """Code: prompts of 700 tokens, answers of 14, ten times as many for one of every three minutes."""
    pattern = rate_bursts(3.5, period=180, share=1 / 3, factor=10.0, first=30)
    outcome = run(pattern, duration=500, seed=seed, start=6, workload=CODE)
    fixed = {"mode": "Auto", "min": 2, "tokenBudget": {"mode": "Fixed"}}
    before = run(pattern, duration=500, seed=seed, start=6, workload=CODE, concurrency=fixed)
    assert in_pace(outcome) > 0.99
    assert in_pace(before) < 0.97
    assert [made["action"] for made in changes(outcome, "TokenBudget")][:1] == ["Down"]
    assert changes(outcome, "LiveCap") == [], "no cut of the cap makes a prompt shorter"
    # A drained replica ends at the look after it became idle.
    assert outcome.replica_hours <= 1.035 * before.replica_hours


def test_a_quiet_fleet_goes_down_to_its_floor(seed: int) -> None:
    """A request every 15 s on four replicas, two at least: the others go after one window."""
    bounds = {"minReplicas": 2, "maxReplicas": 10}
    outcome = run(constant_rate(1 / 15), duration=1800, seed=seed, start=4, autoscaling=bounds)
    assert [made["to"] for made in changes(outcome)] == [2]
    assert outcome.replica_hours * 3600 <= 1.14 * 2 * 1800
    assert late(outcome, 0, 1800) == 0


def test_recovery_after_a_step(seed: int) -> None:
    """Three times the traffic: within a few starts no request waits any more."""
    outcome = run(rate_step(4.0, at=300, factor=3.0), duration=800, seed=seed, start=2)
    recovered = 300 + 5 * STARTUP_SECONDS
    assert late(outcome, recovered, 800) < 0.02
    assert outcome.lost == 0


def test_recovery_after_a_spike_and_back_down(seed: int) -> None:
    outcome = run(rate_spike(4.0, at=300, seconds=60, factor=4.0), duration=1500, seed=seed, start=2)
    assert late(outcome, 300 + 60 + 4 * STARTUP_SECONDS, 1500) < 0.02
    assert outcome.series.wanted[-1] <= 3, "what the spike brought goes again"
    assert outcome.lost == 0


def test_a_burst_that_comes_again_finds_its_replicas(seed: int) -> None:
    """The first is over before replicas have come; five minutes later they are still there."""
    pattern = rate_bursts(4.0, period=400, share=0.15, factor=4.0, first=200)
    outcome = run(pattern, duration=1200, seed=seed, start=2)
    assert late(outcome, 200, 300) > 0.3, "there was something to learn"
    assert late(outcome, 600, 700) < 0.02
    assert late(outcome, 1000, 1200) < 0.02


def test_a_lost_replica_is_replaced_and_nothing_else(seed: int) -> None:
    outcome = run(constant_rate(8.0), duration=800, seed=seed, start=4, faults=[ReplicaDies(at=400)])
    assert late(outcome, 400 + 4 * STARTUP_SECONDS, 800) < 0.02
    before = [made for made in changes(outcome) if made["time"] < 400]
    after = [made for made in changes(outcome) if made["time"] >= 400]
    assert len(after) <= len(before) + 2


@cache
def undisturbed(seed: int) -> SimulationOutcome:
    return run(constant_rate(8.0), duration=1000, seed=seed, start=3)


@pytest.mark.parametrize(("seconds", "share", "seed"), [(60, 1.0, 0), (300, 1.0, 1), (60, 1 / 3, 1), (300, 1 / 3, 0)])
def test_a_blackout_changes_no_decision_while_it_lasts_or_after(seconds: float, share: float, seed: int) -> None:
    """Numbers of no pod, or of two thirds: the fleet is the undisturbed one, also once all report again."""
    blackout = MetricsBlackout(at=400, seconds=seconds, share=share)
    outcome = run(constant_rate(8.0), duration=1000, seed=seed, start=3, faults=[blackout])
    assert changes(outcome) == changes(undisturbed(seed))
    assert outcome.series.wanted == undisturbed(seed).series.wanted
    assert changes(outcome, "LiveCap") == changes(undisturbed(seed), "LiveCap")


@pytest.mark.parametrize(("factor", "seed"), [(20.0, 0), (1000.0, 1)])
def test_no_pending_replica_is_called_back_while_requests_wait_or_are_refused(factor: float, seed: int) -> None:
    """Twenty times the traffic; starts take ten minutes, five times what is assumed, or pods are stuck."""
    outcome = run(
        rate_step(1.0, at=200, factor=20.0), duration=700, seed=seed, start=2,
        faults=[SlowStartups(at=190, seconds=1000, factor=factor)],
        autoscaling={"minReplicas": 1, "maxReplicas": 20}, engine={"maxQueuedRequests": 64},
    )  # fmt: skip
    series, records = outcome.series, outcome.records
    refused = records.arrival[records.outcome == RequestOutcome.REFUSED]
    assert len(refused) > 300, "queues were full"
    called_back = [
        (time, ready + pending, wanted)
        for time, ready, pending, wanted, waits, held in zip(
            series.time, series.ready, series.pending, series.wanted[1:], series.waiting, series.held, strict=False
        )
        if 200 < time < 700 and wanted < ready + pending and pending
        and (waits + held or np.any((refused > time - 30) & (refused <= time)))
    ]  # fmt: skip
    assert called_back == []
    assert series.wanted[-1] >= 5, "what is refused is demand"


def test_a_cold_request_waits_as_long_as_the_gateway_lets_it() -> None:
    """A start of 300 s: longer than ``holdTimeoutSeconds``, shorter than ``activationTimeoutSeconds``."""
    slow = PROFILE.model_copy(
        update={"startup": Startup(schedule_seconds=1, pull_seconds=1, load_seconds=300, warm_seconds=1)}
    )
    to_zero = {"minReplicas": 0, "maxReplicas": 2, "scaleToZero": {"enabled": True, "activationTimeoutSeconds": 400}}
    outcome = run(constant_rate(1 / 20), duration=330, seed=0, start=0, profile=slow, autoscaling=to_zero)
    assert outcome.lost == 0
    assert outcome.records.ttft.max() > 200


def test_counters_that_begin_anew_scale_nothing(seed: int) -> None:
    """Engines that start again in their pods: their load moves for a while, the demand does not."""
    outcome = run(constant_rate(8.0), duration=1000, seed=seed, start=3, faults=[EngineRestarts(at=500)])
    before = undisturbed(seed)
    assert min(outcome.series.wanted) >= min(before.series.wanted)
    assert max(outcome.series.wanted[100:]) <= max(before.series.wanted[100:]) + 1
    assert late(outcome, 500 + 4 * STARTUP_SECONDS, 1000) < 0.02


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_jump_of_the_clock_is_no_reason(seconds: float) -> None:
    outcome = run(constant_rate(8.0), duration=850, seed=1, start=3, faults=[ClockJumps(at=500, seconds=seconds)])
    soon = [made for made in changes(outcome) if 500 <= made["time"] < 560]
    assert soon == []
    assert late(outcome, 600, 850) < 0.02


@pytest.mark.parametrize(("seed", "workload", "rate"), [(0, CHAT, 12.0), (1, CHAT, 16.0), (0, CODE, 24.0)])
def test_at_the_ceiling_what_capacity_can_answer_is_answered_in_time(
    seed: int, workload: Workload, rate: float
) -> None:
    """Twice what two replicas can do: half of it is refused, and most of the rest is in time."""
    outcome = run(
        constant_rate(rate), duration=420, seed=seed, start=2, workload=workload,
        autoscaling={"minReplicas": 1, "maxReplicas": 2},
    )  # fmt: skip
    records = outcome.records
    came = records.arrival >= 120
    ended = (records.outcome == RequestOutcome.FINISHED) & (records.arrival + records.end_to_end >= 120)
    in_time = (records.outcome == RequestOutcome.FINISHED) & came & (records.ttft * 1000 <= outcome.objective.ttft_ms)
    assert np.mean(records.outcome[came] == RequestOutcome.REFUSED) > 0.2, "there is too much to do"
    assert np.count_nonzero(in_time) >= 0.7 * np.count_nonzero(ended & (records.arrival < 420))


def test_never_outside_bounds_and_budget(seed: int) -> None:
    outcome = run(
        rate_step(2.0, at=60, factor=15.0), duration=260, seed=seed, start=2,
        autoscaling={"minReplicas": 2, "maxReplicas": 9},
        resources={"gpu": {"count": 1}}, budget={"maxGPUs": 5},
    )  # fmt: skip
    assert set(outcome.series.wanted) <= set(range(2, 6))
    assert max(outcome.series.wanted) == 5
    assert any("GPUBudget" in made["limitedBy"] for made in changes(outcome)), "the limit is said"


FEW_PREEMPTIONS = {"mode": "Auto", "min": 2, "objective": "PreemptionRate"}


def test_preemptions_come_below_their_target(seed: int) -> None:
    """A pool that carries a quarter of ``max_num_seqs``: the cap finds what it carries."""
    short = PROFILE.model_copy(update={"kv_blocks": 260})
    outcome = run(
        constant_rate(5.0), duration=1500, seed=seed, start=1, profile=short,
        autoscaling={"minReplicas": 1, "maxReplicas": 1}, concurrency=FEW_PREEMPTIONS,
    )  # fmt: skip
    assert changes(outcome, "LiveCap")
    rates = np.array(outcome.series.preemption_rate)
    times = np.array(outcome.series.time)
    assert rates[times < 200].max() > 0.05, "there was something to do"
    records = outcome.records
    ended = records.arrival + records.end_to_end
    settled = (records.outcome == RequestOutcome.FINISHED) & (ended >= 600) & (ended < 1500)
    assert np.mean(records.preemptions[settled] > 0) < 0.02


def test_scarce_memory_is_never_served_worse_than_with_a_fixed_cap(seed: int) -> None:
    """A pool that carries a quarter of ``max_num_seqs``, and as much traffic as it can just serve."""
    short = PROFILE.model_copy(update={"kv_blocks": 260})

    def share_late(concurrency: Mapping[str, Any]) -> float:
        outcome = run(
            constant_rate(2.5), duration=400, seed=seed, start=1, profile=short,
            autoscaling={"minReplicas": 1, "maxReplicas": 1}, concurrency=concurrency,
        )  # fmt: skip
        return late(outcome, 60, 400)

    fixed = share_late({"mode": "Fixed", "tokenBudget": {"mode": "Auto"}})
    assert share_late({"mode": "Auto", "min": 2}) <= fixed
    assert share_late(FEW_PREEMPTIONS) > 1.5 * fixed, "there was something to lose"


@pytest.mark.parametrize("rate", [7.0, 8.5])
def test_no_loop_turns_more_than_once_in_ten_minutes_of_steady_load(rate: float) -> None:
    """Code on as many replicas as are allowed: just in time, and with first tokens that come later and later."""
    outcome = run(
        constant_rate(rate), duration=660, seed=0, start=1, workload=CODE,
        autoscaling={"minReplicas": 1, "maxReplicas": 1},
    )  # fmt: skip
    for loop in ("Replicas", "LiveCap", "TokenBudget"):
        made = [change for change in changes(outcome, loop) if 60 <= change["time"] < 660]
        turns = [b["message"] for a, b in pairwise(made) if a["action"] != b["action"]]
        assert len(turns) <= 1, turns
