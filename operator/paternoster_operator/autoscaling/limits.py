"""How fast replicas may change: stabilization windows and step limits, as in the HorizontalPodAutoscaler."""

import math
from dataclasses import replace

from paternoster_operator.autoscaling.decision import Evaluation, LawState
from paternoster_operator.autoscaling.policy import ReplicaPolicy
from paternoster_operator.autoscaling.signals import Signals

PERIOD_SECONDS = 15.0
"""Time between two looks at replicas: three times the cap loop's, so that a cap has settled before they are judged."""
COVERAGE = 0.75
"""Share of a window's looks that must have been made for it to count."""
UNKNOWN_STARTUP_SECONDS = 120.0
"""Assumed while no start was seen."""
STARTUPS = 2.0
"""A spare replica is kept for so many times what it would take to get it back: twice, since users pay for a mistake."""
KEPT_STARTUPS = 12.0
"""What a peak filled is kept for so many times what a start takes: what is back within seconds is not worth an hour."""
LONGEST_KEPT_SECONDS = 900.0
"""For how long at most: a peak that was chance costs a quarter of an hour of what it filled and no more."""
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 600.0
"""Bounds of what is learnt: two windows of evidence at least, and never so long that a fleet forgets to shrink."""


def startup_seconds(signals: Signals) -> float:
    """What a new replica takes until it serves, as far as is known."""
    return UNKNOWN_STARTUP_SECONDS if signals.startup_seconds is None else signals.startup_seconds


def down_window(loop: ReplicaPolicy, signals: Signals) -> float:
    """Seconds for which fewer replicas must be enough before one is given up; learnt from starts unless it is set."""
    if loop.scale_down.stabilization_window_seconds is not None:
        return loop.scale_down.stabilization_window_seconds
    return min(max(STARTUPS * startup_seconds(signals), SHORTEST_SECONDS), LONGEST_SECONDS)


def kept_seconds(loop: ReplicaPolicy, signals: Signals) -> float | None:
    """For how long what a peak filled is kept; None where the user set the window, which then is all there is."""
    if loop.scale_down.stabilization_window_seconds is not None:
        return None
    return min(KEPT_STARTUPS * startup_seconds(signals), LONGEST_KEPT_SECONDS)


def remember(loop: ReplicaPolicy, state: LawState, evaluation: Evaluation) -> LawState:
    """Append an evaluation; as many are kept as the longest window has."""
    now = evaluation.time
    horizon = max(
        loop.scale_up.stabilization_window_seconds,
        LONGEST_KEPT_SECONDS,
        loop.scale_down.stabilization_window_seconds or 0,
    )
    period = max(loop.scale_up.period_seconds, loop.scale_down.period_seconds)
    return replace(
        state,
        evaluations=(*state.evaluations[-math.ceil(horizon / PERIOD_SECONDS) :], evaluation),
        changes=tuple(change for change in state.changes if change[0] > now - period),
    )


def recommended_within(state: LawState, now: float, window: float) -> list[int]:
    """What the formula gave in the last ``window`` seconds, this moment included.

    Empty when it was asked too rarely in that time: after a start, a silence or a jump of the clock nothing is steady.
    """
    within = [made.wanted for made in state.evaluations if now - window <= made.time <= now]
    return within if len(within) * PERIOD_SECONDS >= COVERAGE * window else []


def filled_within(state: LawState, seconds: float) -> int:
    """Most replicas that what ran filled in the last ``seconds``; 0 before the first evaluation.

    Evaluations are counted and clocks not compared: neither a gap in the numbers nor a jump of the clock is a time
    without need.
    """
    return max((made.filled for made in state.evaluations[-1 - int(seconds // PERIOD_SECONDS) :]), default=0)


def steps_left(state: LawState, now: float, period: float, percent: int, pods: int, sign: int) -> int:
    """How many replicas may still change in direction ``sign`` in this period; the larger of the two limits."""
    recent = sum(difference for when, difference in state.changes if when > now - period)
    done = sum(difference for when, difference in state.changes if when > now - period and difference * sign > 0) * sign
    at_begin = state.replicas - recent
    return max(0, max(pods, math.ceil(at_begin * percent / 100)) - done)
