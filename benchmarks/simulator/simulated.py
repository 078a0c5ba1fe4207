"""The simulated side: the same requests on a profile that was measured."""

from collections.abc import Sequence
from dataclasses import replace

from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.policy import Action, Policy
from paternoster_simulator.profile import Profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.trace import TraceRow
from simulator.conditions import Conditions
from simulator.measures import Measures, of_simulation

AFTER = 1e-6
"""Seconds: a row at the very end belongs to the trace."""
AT_ONCE = 500
"""Requests that capacity is known from: more wait for longer than a queue lets them."""
STEPS = tuple(1 + permille / 1000 for permille in range(-40, 41, 5))
"""Times what a step takes, nearer to each other than calibrations are: what differs by more than that is chance."""


def with_step(profile: Profile, step: dict[str, float]) -> Profile:
    """The profile with another ``step`` section."""
    return Profile.model_validate({**profile.model_dump(), "step": step})


def slowed(profile: Profile, times: float) -> Profile:
    """The profile with steps that take ``times`` as long."""
    step = profile.model_dump()["step"]
    return with_step(profile, {name: seconds * times for name, seconds in step.items()})


class OftenLooked:
    """A policy that decides as often as it wants to, in a simulation that takes samples more often."""

    def __init__(self, policy: Policy, period_seconds: float) -> None:
        self.period_seconds = period_seconds
        self._policy = policy
        self._next = 0.0
        self._action: Action | None = None

    def decide(self, observation: Observation) -> Action:
        if self._action is not None and observation.now < self._next - period_tolerance(self.period_seconds):
            return replace(self._action, decisions=())
        self._next = observation.now + self._policy.period_seconds
        self._action = self._policy.decide(observation)
        return self._action


def period_tolerance(period_seconds: float) -> float:
    """Sums of periods differ from their product in the last digits."""
    return period_seconds / 2


def run(
    conditions: Conditions, profile: Profile, rows: Sequence[TraceRow], *, law: bool, sample_seconds: float
) -> Measures:
    """Serve ``rows`` in virtual time."""
    spec = conditions.resource(law=law).spec
    policy: Policy = LawPolicy.from_spec(spec, profile) if law else FixedPolicy(conditions.replicas)
    outcome = simulate_fleet(
        profile,
        rows,
        OftenLooked(policy, sample_seconds),
        start_replicas=conditions.replicas,
        duration=rows[-1].arrival_s + AFTER,
        settings=FleetSettings.from_spec(spec, profile),
    )
    return of_simulation(outcome)


def nearby(
    conditions: Conditions, profile: Profile, rows: Sequence[TraceRow], *, law: bool, sample_seconds: float
) -> list[Measures]:
    """Serve ``rows`` once for each of ``STEPS``."""
    profiles = [slowed(profile, times) for times in STEPS]
    return [run(conditions, each, rows, law=law, sample_seconds=sample_seconds) for each in profiles]


def capacity(conditions: Conditions, profile: Profile, rows: Sequence[TraceRow], *, sample_seconds: float) -> float:
    """Requests per second that this fleet answers when they are there at the start, the first ``AT_ONCE`` of them."""
    at_once = [replace(row, arrival_s=0.0) for row in rows[:AT_ONCE]]
    outcome = run(conditions, profile, at_once, law=False, sample_seconds=sample_seconds)
    return len(at_once) / outcome.seconds
