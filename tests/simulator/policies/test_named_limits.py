"""What each decision about replicas names as its limit is what limits it, and its message says until when."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulator.test_control_gates import CHAT, PROFILE, spec

from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.arrivals import Pattern, constant_rate, generate_requests, rate_bursts, rate_step
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.workload import Limits

STEPS = {"minReplicas": 2, "maxReplicas": 6, "scaleUp": {"maxPods": 1, "maxPercent": 1}, "scaleDown": {"maxPods": 1,
         "maxPercent": 1, "stabilizationWindowSeconds": 30}}  # fmt: skip
MESSAGES = {
    "MinReplicas": "fewest allowed",
    "MaxReplicas": "most allowed",
    "Stabilizing": "held for another",
    "StepLimited": "held for another",
    "PendingReplicas": "held until",
}


class RecordedLaw(LawPolicy):
    """Records every decision, also those that hold."""

    made: list[Mapping[str, Any]]

    def decide(self, observation: Observation) -> Action:
        action = super().decide(observation)
        self.made += [made for made in action.decisions if made["loop"] == "Replicas"]
        return action


def decisions(pattern: Pattern, start: int, **changes: Any) -> Sequence[Mapping[str, Any]]:
    """All about the replicas of a fleet in ten minutes."""
    manifest = spec(**changes)
    policy = RecordedLaw.from_spec(manifest, PROFILE)
    assert isinstance(policy, RecordedLaw)
    policy.made = []
    rows = generate_requests(
        pattern, duration=600, seed=0, limits=Limits(max_total=PROFILE.max_model_len), workload=CHAT
    )
    simulate_fleet(
        PROFILE, rows, policy, start_replicas=start, duration=600, seed=0,
        settings=FleetSettings.from_spec(manifest, PROFILE),
    )  # fmt: skip
    return policy.made


def test_what_keeps_a_fleet_from_what_is_wanted_is_named_and_nothing_else() -> None:
    seen: set[tuple[str, str]] = set()
    for pattern, start, autoscaling in (
        (constant_rate(1.0), 5, {"minReplicas": 2, "maxReplicas": 6}),
        (rate_bursts(3.0, period=300.0, first=90.0), 2, {"minReplicas": 1, "maxReplicas": 6}),
        (rate_step(30.0, at=300.0, factor=0.1), 3, STEPS),
    ):
        for made in decisions(pattern, start, autoscaling=autoscaling):
            low, high, to = autoscaling["minReplicas"], autoscaling["maxReplicas"], made["to"]
            limits, message = made["limitedBy"], made["message"]
            if made["reason"] in ("MetricsStale", "InsufficientData"):
                continue
            assert bool(limits) == (made["recommended"] != to), made
            assert not limits or MESSAGES[limits[0]] in message, made
            assert "MinReplicas" not in limits or to == low, made
            assert "MaxReplicas" not in limits or to == high, made
            assert "PendingReplicas" not in limits or made["inputs"]["pending"] != "0", made
            if limits and to != made["from"]:
                assert f"; {made['recommended']} wanted, " in message, made
            seen.update((made["action"], limit) for limit in limits or ["none"])
    assert seen >= {
        ("Hold", "MinReplicas"), ("Hold", "MaxReplicas"), ("Hold", "Stabilizing"), ("Hold", "StepLimited"),
        ("Hold", "none"), ("Down", "MinReplicas"), ("Down", "StepLimited"), ("Up", "StepLimited"), ("Up", "none"),
    }, seen  # fmt: skip
