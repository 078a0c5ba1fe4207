"""The scaling law: demand against capacity for replicas, preemptions against their target for the live cap.

One function without I/O or a clock, so that the operator, a laptop and a simulation decide alike.
"""

from paternoster_operator.scaling.concurrency import decide_cap, observation_window
from paternoster_operator.scaling.decision import Decision, LawState
from paternoster_operator.scaling.policy import ScalingPolicy
from paternoster_operator.scaling.replicas import decide_replicas
from paternoster_operator.scaling.signals import Signals

__all__ = ["decide", "first_state", "observation_window"]


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
    concurrency, state = decide_cap(policy.cap, signals, state, now)
    replicas, state = decide_replicas(policy, signals, state, now)
    return Decision(replicas, concurrency, state)
