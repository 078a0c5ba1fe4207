"""A fleet whose engines report what is not so: within bounds, and no request later than on a fixed fleet.

What cannot be is not believed before it comes to the law (``test_engine_lies.py``); here the law believes all of it.
"""

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any, Final

import pytest
from tests.simulator.test_control_gates import CHAT, PROFILE, late, spec

from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_simulator.arrivals import Pattern, constant_rate, generate_requests, rate_step
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.policy import Action, Policy
from paternoster_simulator.settings import FleetSettings, with_capacity
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.workload import Limits

BEGIN = 200.0
SECONDS: Final = 5
TERMS: Final = tuple(combinations_with_replacement(range(SECONDS + 1), 2))
"""Pairs of a step's numbers whose product each of ``step_sums`` is."""
EIGHT = constant_rate(8.0)
COUNTERS = ("requests_total", "requests_finished_total", "generation_tokens_total")


class FalseReports(LawPolicy):
    """From ``BEGIN`` on, some numbers of the first engine are a multiple of what they are; or those of all engines."""

    def __init__(self, policy: ScalingPolicy, fields: tuple[str, ...], factor: float, every: bool = False) -> None:
        super().__init__(policy)
        self._fields, self._factor, self._every = fields, factor, every
        self._begin = BEGIN

    def decide(self, observation: Observation) -> Action:
        engines = dict(observation.engines)
        if observation.now >= self._begin:
            for pod in engines if self._every else [min(engines)]:
                true = engines[pod]
                engines[pod] = true.model_copy(
                    update={field: self._false(getattr(true, field)) for field in self._fields}
                )
        return super().decide(replace(observation, engines=engines))

    def _false(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(number * self._factor for number in value)
        return int(value * self._factor)


class FalseStepTimes(FalseReports):
    """The steps of all engines take a multiple of their time: as from a profile that is wrong by that factor."""

    def __init__(self, policy: ScalingPolicy, factor: float) -> None:
        super().__init__(policy, ("step_sums",), factor, every=True)
        self._begin = 0.0

    def _false(self, value: Any) -> Any:
        powers = [(row == SECONDS) + (column == SECONDS) for row, column in TERMS]
        return tuple(number * self._factor**power for number, power in zip(value, powers, strict=True))


def law_policy() -> ScalingPolicy:
    return ScalingPolicy.from_spec(with_capacity(spec(), PROFILE))


def run_false(fields: tuple[str, ...], factor: float) -> SimulationOutcome:
    """Ten minutes at a load for three replicas, with one engine that reports falsely."""
    return run(FalseReports(law_policy(), fields, factor))


def run(policy: Policy, pattern: Pattern = EIGHT) -> SimulationOutcome:
    """Ten minutes, at a load for three replicas where no other is given."""
    manifest = spec()
    return simulate_fleet(
        PROFILE,
        generate_requests(pattern, duration=600, seed=0, limits=Limits(max_total=1024), workload=CHAT),
        policy,
        start_replicas=3,
        duration=600,
        seed=0,
        settings=FleetSettings.from_spec(manifest, PROFILE),
    )


@pytest.mark.parametrize(
    ("fields", "factor", "most"),
    [
        pytest.param(COUNTERS, 100, 10, id="a hundred times the traffic"),
        pytest.param(("running", "waiting"), 100, 10, id="a hundred times the requests"),
        pytest.param(("step_sums",), 100, 3, id="a hundred times the work"),
        pytest.param(("first_token_seconds_total", "inter_token_seconds_total"), 100, 3, id="a hundred times the time"),
        pytest.param(("queue_count_total",), 100, 3, id="a hundred times the starts"),
        pytest.param((*COUNTERS, "step_sums"), 0.01, 3, id="counters that go back"),
    ],
)
def test_one_engine_that_reports_falsely_makes_no_request_late(
    fields: tuple[str, ...], factor: float, most: int
) -> None:
    outcome = run_false(fields, factor)
    assert late(outcome, BEGIN, 600) < 0.02
    assert outcome.lost == 0
    assert min(outcome.series.wanted) >= 3
    assert max(outcome.series.wanted) <= most


@pytest.mark.parametrize("fields", [COUNTERS, ("running", "waiting"), ("step_sums",), ("kv_blocks_used",)])
def test_engines_that_all_report_a_hundredfold_make_no_request_late(fields: tuple[str, ...]) -> None:
    outcome = run(FalseReports(law_policy(), fields, 100, every=True))
    assert late(outcome, BEGIN, 600) < 0.02
    assert outcome.lost == 0
    assert 3 <= min(outcome.series.wanted) <= max(outcome.series.wanted) <= 10


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_step_times_wrong_by_five_end_no_worse_than_a_fixed_fleet(factor: float) -> None:
    """From the first report on. Constant traffic beside three replicas; a step beside the fewest that are allowed."""
    steady = run(FalseStepTimes(law_policy(), factor))
    assert late(steady, 60, 600) <= late(run(FixedPolicy(3)), 60, 600)
    assert max(steady.series.wanted) == (10 if factor > 1 else 3), "the model believes them, within bounds"
    grown = rate_step(4.0, at=200, factor=3.0)
    wrong = run(FalseStepTimes(law_policy(), factor), grown)
    assert late(wrong, 60, 600) < late(run(FixedPolicy.from_spec(spec(), PROFILE), grown), 60, 600)
    assert wrong.series.wanted[-1] >= 3


@pytest.mark.parametrize("factor", [0.01, 100])
def test_the_clock_of_an_engine_changes_no_decision(factor: float) -> None:
    """Neither ``time`` nor ``started_at`` is read: an engine's numbers count from when the operator got them."""
    assert run_false(("time", "started_at"), factor).decisions == run_false((), 1.0).decisions
