"""The scaling law: demand against capacity for replicas, preemptions against their target for the live cap.

One function without I/O or a clock, so that the operator, a laptop and a simulation decide alike.
"""

from dataclasses import replace

from paternoster_operator.scaling.concurrency import PERIOD_SECONDS, decide_cap, longest_window, observation_window
from paternoster_operator.scaling.decision import Decision, LawState
from paternoster_operator.scaling.policy import ScalingPolicy
from paternoster_operator.scaling.replicas import decide_replicas
from paternoster_operator.scaling.signals import Signals
from paternoster_operator.scaling.trend import note

__all__ = ["decide", "first_state", "longest_window", "observation_window"]


def first_state(policy: ScalingPolicy, now: float, *, replicas: int | None = None, cap: int | None = None) -> LawState:
    """Memory to begin with: what already runs, so that a restarted operator surprises nobody; else the spec's start."""
    start = policy.fixed_replicas if policy.replicas is None else policy.replicas.lowest
    return LawState(
        replicas=start if replicas is None else replicas,
        cap=policy.cap.initial if cap is None else cap,
        since=now,
    )


def decide(policy: ScalingPolicy, signals: Signals, state: LawState, now: float) -> Decision:
    """What to do now. The cap comes first: replicas are judged by the cap that will hold."""
    state = _learn(signals, state, now)
    concurrency, state = decide_cap(policy, signals, state, now)
    replicas, state = decide_replicas(policy, signals, state, now)
    return Decision(replicas, concurrency, state)


def _learn(signals: Signals, state: LawState, now: float) -> LawState:
    """Take a look's numbers in, once a period: what is looked at twice is not twice as true."""
    elapsed = PERIOD_SECONDS if state.looked is None else now - state.looked
    if not signals.fresh or 0 <= elapsed < PERIOD_SECONDS:
        return state
    return replace(
        state,
        looked=now,
        experience=state.experience.observe(signals, elapsed),
        arrivals=note(state.arrivals, now, signals.arrival_rate),
    )
