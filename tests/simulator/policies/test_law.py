"""The operator's law steers a simulated fleet."""

from collections.abc import Sequence
from dataclasses import replace

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.arrivals import constant_rate, generate_requests, rate_spike, rate_step
from paternoster_simulator.failures import MetricsBlackout
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.profile import load_profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.trace import TraceRow
from paternoster_traces.workload import Limits

PROFILE = load_profile("llama-3-8b-h100")
LIMITS = Limits(max_total=PROFILE.max_model_len)


def spec(maximum: int = 8, minimum: int = 1, **concurrency: object) -> LLMDeploymentSpec:
    return LLMDeploymentSpec.model_validate(
        {
            "model": {"source": "file:///model"},
            "engine": {"maxNumSeqs": 64},
            "autoscaling": {
                "minReplicas": minimum,
                "maxReplicas": maximum,
                "scaleDown": {"stabilizationWindowSeconds": 60},
            },
            "concurrency": concurrency,
        }
    )


def run(spec: LLMDeploymentSpec, rows: Sequence[TraceRow], duration: float, **more: object) -> SimulationOutcome:
    return simulate_fleet(
        PROFILE, rows, LawPolicy.from_spec(spec, PROFILE), start_replicas=1, duration=duration,
        settings=FleetSettings.from_spec(spec, PROFILE), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_more_traffic_brings_more_replicas_and_each_change_has_its_reason() -> None:
    pattern = rate_step(5.0, at=60, factor=6)
    outcome = run(spec(), list(generate_requests(pattern, duration=300, limits=LIMITS)), 300)
    assert outcome.series.wanted[0] == 1
    assert 1 < max(outcome.series.wanted) <= 8
    changes = [d for d in outcome.decisions if d["loop"] == "Replicas"]
    assert len(changes) == outcome.scale_events > 0
    assert all(d["reason"] and d["message"] and d["from"] != d["to"] for d in changes)


def test_bounds_hold() -> None:
    outcome = run(
        spec(maximum=3, minimum=2), list(generate_requests(constant_rate(60), duration=120, limits=LIMITS)), 120
    )
    assert set(outcome.series.wanted[1:]) <= {2, 3}


def test_nothing_moves_in_a_blackout() -> None:
    rows = list(generate_requests(rate_step(3.0, at=35, factor=12), duration=150, limits=LIMITS))
    outcome = run(spec(), rows, 150, faults=[MetricsBlackout(at=31, seconds=100)])
    stale = [d["time"] for d in outcome.decisions if 31 + 15 < d["time"] < 131]
    assert stale == []


def test_the_cap_is_cut_where_requests_are_preempted() -> None:
    small = PROFILE.model_copy(update={"kv_blocks": 300})
    law = spec(maximum=1, mode="Auto", objective="PreemptionRate", min=2)
    rows = list(generate_requests(constant_rate(9), duration=180, limits=LIMITS))
    outcome = simulate_fleet(
        small, rows, LawPolicy.from_spec(law, small), start_replicas=1, duration=180,
        settings=FleetSettings.from_spec(law, small),
    )  # fmt: skip
    assert outcome.totals.preempted > 0
    assert min(outcome.series.cap[1:]) < 64
    assert outcome.cap_events > 0


def test_an_order_that_was_not_done_is_not_done_late() -> None:
    """Eight times the traffic for a minute, while the fleet is held at one replica; it is let go when all is over."""

    class Held:
        period_seconds = LawPolicy.period_seconds

        def __init__(self) -> None:
            self.law = LawPolicy.from_spec(spec(), PROFILE)
            self.desired: list[int] = []

        def decide(self, observation: Observation) -> Action:
            action = self.law.decide(observation)
            self.desired.append(action.replicas)
            return replace(action, replicas=1) if observation.now < 290 else action

    held = Held()
    rows = list(generate_requests(rate_spike(5, at=60, seconds=60, factor=8), duration=300, limits=LIMITS))
    outcome = simulate_fleet(
        PROFILE, rows, held, start_replicas=1, duration=300, settings=FleetSettings.from_spec(spec(), PROFILE)
    )
    assert max(held.desired) > 1, "the spike asks for more"
    assert set(outcome.series.wanted) == {1}, "and when the actions are done again, nobody needs them any more"
