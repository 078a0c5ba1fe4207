"""How fast replicas may change: stabilization windows and step limits, as in the HorizontalPodAutoscaler."""

import math
from dataclasses import dataclass, replace

from paternoster_operator.autoscaling.control_loop import LoopState
from paternoster_operator.autoscaling.policy import ReplicaPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of the replica loop."""

    time: float
    wanted: int
    """Replicas that the formula gave."""
    filled: int = 0
    """Replicas that what ran would have filled, of those there were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState(LoopState):
    """What the replica loop remembers."""

    since: float
    """When this memory began."""
    added: float | None = None
    """When replicas were added last."""
    evaluations: tuple[Evaluation, ...] = ()
    """Oldest first, as far back as the longest window."""
    changes: tuple[tuple[float, int], ...] = ()
    """(time, difference) of changes, as far back as the longest period."""


def startup_seconds(signals: Signals, tuning: Tuning) -> float:
    """Time that a new replica takes until it serves."""
    return tuning.unknown_startup_seconds if signals.startup_seconds is None else signals.startup_seconds


def down_window(loop: ReplicaPolicy, signals: Signals, tuning: Tuning) -> float:
    """Seconds for which fewer replicas must be enough before one is given up; learnt from starts unless it is set."""
    if loop.settings.scale_down.stabilization_window_seconds is not None:
        return loop.settings.scale_down.stabilization_window_seconds
    learnt = tuning.spare_startups * startup_seconds(signals, tuning)
    return min(max(learnt, tuning.drain_seconds), tuning.max_kept_seconds)


def filled_window(loop: ReplicaPolicy, signals: Signals, tuning: Tuning) -> float | None:
    """Seconds for which replicas that a peak filled stay; None where the user set the window, which is then the one."""
    if loop.settings.scale_down.stabilization_window_seconds is not None:
        return None
    return min(tuning.filled_startups * startup_seconds(signals, tuning), tuning.max_kept_seconds)


def record_evaluation(loop: ReplicaPolicy, state: ReplicaState, evaluation: Evaluation, tuning: Tuning) -> ReplicaState:
    """Append an evaluation; those beyond the longest window, and changes beyond the longest period, are dropped."""
    longest = max(
        loop.settings.scale_up.stabilization_window_seconds,
        tuning.max_kept_seconds,
        loop.settings.scale_down.stabilization_window_seconds or 0,
    )
    most = math.ceil(longest / tuning.replica_period_seconds)
    period = max(loop.settings.scale_up.period_seconds, loop.settings.scale_down.period_seconds)
    return replace(
        state,
        evaluations=(*state.evaluations[-most:], evaluation),
        changes=tuple(change for change in state.changes if change[0] > evaluation.time - period),
    )


def wanted_within(state: ReplicaState, now: float, window: float, tuning: Tuning) -> list[int]:
    """What the formula gave in the last ``window`` seconds, this moment included.

    Empty where there were too few evaluations: after a start, a silence or a jump of the clock nothing is steady.
    """
    within = [made.wanted for made in state.evaluations if now - window <= made.time <= now]
    return within if len(within) * tuning.replica_period_seconds >= tuning.window_coverage * window else []


def seconds_until_steady(
    state: ReplicaState, now: float, window: float, bound: int, sign: int, tuning: Tuning
) -> float:
    """Seconds until more than ``bound``, with ``sign`` -1 fewer, were wanted throughout ``window``, at the earliest."""
    opposed = [
        made.time
        for made in state.evaluations
        if now - window <= made.time <= now and (made.wanted - bound) * sign <= 0
    ]
    return max(max([state.since, *opposed]) + window - now, tuning.replica_period_seconds)


def seconds_until_unfilled(state: ReplicaState, seconds: float, bound: int, tuning: Tuning) -> float:
    """Seconds until fewer than ``bound`` replicas were filled within ``seconds``, at the earliest."""
    period = tuning.replica_period_seconds
    since = next(i for i, made in enumerate(reversed(state.evaluations)) if made.filled >= bound)
    return (int(seconds // period) + 1 - since) * period


def seconds_until_step(state: ReplicaState, now: float, period: float, sign: int) -> float:
    """Seconds until the first change in direction ``sign`` within the period no longer counts."""
    return min((when + period - now for when, difference in state.changes if difference * sign > 0), default=0.0)


def filled_within(state: ReplicaState, seconds: float, tuning: Tuning, since: float = -math.inf) -> int:
    """Most replicas that what ran filled in the last ``seconds`` and ``since`` then; 0 before the first evaluation.

    Evaluations are counted and clocks not compared: neither a gap in the numbers nor a jump of the clock is a time
    without need.
    """
    first = -1 - int(seconds // tuning.replica_period_seconds)
    return max((made.filled for made in state.evaluations[first:] if made.time >= since), default=0)


def steps_left(state: ReplicaState, now: float, period: float, percent: int, pods: int, sign: int) -> int:
    """How many replicas may still change in direction ``sign`` in this period; the larger of the two limits."""
    recent = sum(difference for when, difference in state.changes if when > now - period)
    done = sum(difference for when, difference in state.changes if when > now - period and difference * sign > 0) * sign
    at_begin = state.target - recent
    return max(0, max(pods, math.ceil(at_begin * percent / 100)) - done)
