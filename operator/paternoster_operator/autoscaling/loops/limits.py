"""How far replicas may move now, by each rule; windows and step limits are those of the HorizontalPodAutoscaler."""

import math
from dataclasses import dataclass, replace

from paternoster_operator.api.v1alpha1 import ScaleDown, ScaleUp
from paternoster_operator.autoscaling.control_loop import LoopState
from paternoster_operator.autoscaling.decision import Reason
from paternoster_operator.autoscaling.policy import ReplicaPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning

WINDOW_FIELD = "stabilizationWindowSeconds"


@dataclass(frozen=True, slots=True)
class ReplicaBound:
    """How far the number of replicas may move now, by one rule."""

    replicas: int
    reason: Reason
    message: str
    """What holds the rest, and until when."""
    seconds: float = 0.0
    """How long it holds from now on; 0 where no clock ends it."""


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
    evaluations: tuple[Evaluation, ...] = ()
    """Oldest first, as far back as the longest window."""
    changes: tuple[tuple[float, int], ...] = ()
    """(time, difference) of changes, as far back as the longest period."""


def startup_seconds(signals: Signals, tuning: Tuning) -> float:
    """Time that a new replica takes until it serves."""
    return tuning.unknown_startup_seconds if signals.startup_seconds is None else signals.startup_seconds


def record_evaluation(loop: ReplicaPolicy, state: ReplicaState, evaluation: Evaluation, tuning: Tuning) -> ReplicaState:
    """Append an evaluation; those beyond the longest window, and changes beyond the longest period, are dropped."""
    up, down = loop.settings.scale_up, loop.settings.scale_down
    longest = max(up.stabilization_window_seconds, tuning.max_kept_seconds, down.stabilization_window_seconds or 0)
    most = math.ceil(longest / tuning.replica_period_seconds)
    period = max(up.period_seconds, down.period_seconds)
    return replace(
        state,
        evaluations=(*state.evaluations[-most:], evaluation),
        changes=tuple(change for change in state.changes if change[0] > evaluation.time - period),
    )


def bounds_upwards(loop: ReplicaPolicy, state: ReplicaState, now: float, tuning: Tuning) -> list[ReplicaBound]:
    """Most replicas, by each rule."""
    up = loop.settings.scale_up
    most = ReplicaBound(loop.highest, loop.highest_reason, f"{loop.highest} replicas are the most allowed")
    # The first one, for a request that is held, comes at once.
    if state.target == 0:
        return [most]
    steady = _steady_bound(state, now, up.stabilization_window_seconds, WINDOW_FIELD, +1, tuning)
    return [most, steady, _step_bound(up, state, now, +1)]


def bounds_downwards(
    loop: ReplicaPolicy, signals: Signals, state: ReplicaState, now: float, tuning: Tuning, filled_since: float
) -> list[ReplicaBound]:
    """Fewest replicas, by each rule; what was filled before ``filled_since`` does not count."""
    current, down, startup = state.target, loop.settings.scale_down, startup_seconds(signals, tuning)
    bounds = [ReplicaBound(loop.lowest, Reason.MIN_REPLICAS, f"{loop.lowest} replicas are the fewest allowed")]
    window: float | None = down.stabilization_window_seconds
    rule = WINDOW_FIELD
    if window is None:
        # Learnt from starts unless it is set.
        rule = f"{WINDOW_FIELD} is unset"
        window = min(max(tuning.spare_startups * startup, tuning.min_kept_seconds), tuning.max_kept_seconds)
    if signals.pending:
        # Nothing is called back that may be wanted again before it would have served.
        if startup > window:
            window, rule = startup, "a start-up"
        if signals.queued + signals.refused > 0:
            unserved = f"{signals.pending} pending are held until none waits, is held or was refused"
            bounds.append(ReplicaBound(current, Reason.PENDING_REPLICAS, unserved))
    bounds.append(_steady_bound(state, now, window, rule, -1, tuning))
    if down.stabilization_window_seconds is None:
        kept_seconds = min(tuning.filled_startups * startup, tuning.max_kept_seconds)
        bounds.append(_filled_bound(state, kept_seconds, tuning, filled_since))
    if signals.pending:
        # Those on their way can be called back; those that serve stay until it is seen that they are enough.
        serving = f"those that serve are held until the {signals.pending} pending serve"
        bounds.append(ReplicaBound(min(signals.ready, current), Reason.PENDING_REPLICAS, serving))
    return [*bounds, _step_bound(down, state, now, -1)]


def _steady_bound(state: ReplicaState, now: float, window: float, rule: str, sign: int, tuning: Tuning) -> ReplicaBound:
    """What the formula gave throughout the last ``window`` seconds, this moment included; ``sign`` -1 for fewer.

    ``rule``: where the window comes from.
    Where there were too few evaluations nothing moves: after a start, a silence or a jump of the clock nothing is
    steady.
    """
    within = [made for made in state.evaluations if now - window <= made.time <= now]
    covered = len(within) * tuning.replica_period_seconds >= tuning.window_coverage * window
    wanted = [made.wanted * sign for made in within] if covered and now - state.since >= window else []
    steady = max(min(wanted, default=state.target * sign), state.target * sign) * sign
    opposed = [made.time for made in within if (made.wanted - steady) * sign <= 0]
    more = max(max([state.since, *opposed]) + window - now, tuning.replica_period_seconds)
    wanted_so_long = f"until {'fewer' if sign < 0 else 'more'} were wanted for {window:.0f} s ({rule})"
    return ReplicaBound(steady, Reason.STABILIZING, f"held for another {more:.0f} s, {wanted_so_long}", more)


def _step_bound(settings: ScaleUp | ScaleDown, state: ReplicaState, now: float, sign: int) -> ReplicaBound:
    """What may still change in direction ``sign`` in this period; the larger of the two limits."""
    period = settings.period_seconds
    recent = [difference for when, difference in state.changes if when > now - period]
    done = sum(difference for difference in recent if difference * sign > 0) * sign
    most = max(settings.max_pods, math.ceil((state.target - sum(recent)) * settings.max_percent / 100))
    more = min((when + period - now for when, difference in state.changes if difference * sign > 0), default=0.0)
    moved = f"as many as allowed were {'added' if sign > 0 else 'removed'} in {period} s"
    target = state.target + max(most - done, 0) * sign
    return ReplicaBound(target, Reason.STEP_LIMITED, f"held for another {more:.0f} s, {moved}")


def _filled_bound(state: ReplicaState, seconds: float, tuning: Tuning, since: float) -> ReplicaBound:
    """Replicas that a peak filled stay for ``seconds``."""
    period, filled = tuning.replica_period_seconds, min(filled_within(state, seconds, tuning, since), state.target)
    ago = next(i for i, made in enumerate(reversed(state.evaluations)) if made.filled >= filled)
    more = (int(seconds // period) + 1 - ago) * period
    held = f"held for another {more:.0f} s, as {filled} were filled within {seconds:.0f} s"
    return ReplicaBound(filled, Reason.STABILIZING, held, more)


def filled_within(state: ReplicaState, seconds: float, tuning: Tuning, since: float = -math.inf) -> int:
    """Most replicas that what ran filled in the last ``seconds`` and ``since`` then; 0 before the first evaluation.

    Evaluations are counted and clocks not compared: neither a gap in the numbers nor a jump of the clock is a time
    without need.
    """
    first = -1 - int(seconds // tuning.replica_period_seconds)
    return max((made.filled for made in state.evaluations[first:] if made.time >= since), default=0)
