"""A fleet of which one engine reports what is not so: within bounds, and no request later than on a fixed fleet.

What cannot be is not believed before it comes to the law (``test_engine_lies.py``); here the law believes all of it.
"""

from dataclasses import replace

import pytest
from tests.simulator.test_control_gates import CHAT, PROFILE, late, spec

from paternoster_engine.bench.requests.workload import Limits
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_simulator.arrivals import constant, synthetic
from paternoster_simulator.outcome.outcome import Outcome
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.settings import FleetSettings, with_capacity
from paternoster_simulator.simulation import simulate

BEGIN = 200.0
COUNTERS = ("requests_total", "requests_finished_total", "generation_tokens_total")


class OneFalseReport(LawPolicy):
    """From ``BEGIN`` on, some numbers of the first engine are a multiple of what they are."""

    def __init__(self, policy: ScalingPolicy, fields: tuple[str, ...], factor: float) -> None:
        super().__init__(policy)
        self._fields, self._factor = fields, factor

    def decide(self, observation: Observation) -> Action:
        engines = dict(observation.engines)
        if observation.now >= BEGIN:
            first = min(engines)
            true = engines[first]
            engines[first] = true.model_copy(
                update={field: self._false(getattr(true, field)) for field in self._fields}
            )
        return super().decide(replace(observation, engines=engines))

    def _false(self, value: int | float | tuple[float, ...]) -> int | tuple[float, ...]:
        if isinstance(value, tuple):
            return tuple(number * self._factor for number in value)
        return int(value * self._factor)


def run_false(fields: tuple[str, ...], factor: float) -> Outcome:
    """Ten minutes at a load for three replicas, with one engine that reports falsely."""
    manifest = spec()
    policy = ScalingPolicy.from_spec(with_capacity(manifest, PROFILE))
    return simulate(
        PROFILE,
        synthetic(constant(8.0), duration=600, seed=0, limits=Limits(max_total=1024), workload=CHAT),
        OneFalseReport(policy, fields, factor),
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


@pytest.mark.parametrize("factor", [0.01, 100])
def test_the_clock_of_an_engine_changes_no_decision(factor: float) -> None:
    """Neither ``time`` nor ``started_at`` is read: an engine's numbers count from when the operator got them."""
    assert run_false(("time", "started_at"), factor).decisions == run_false((), 1.0).decisions
