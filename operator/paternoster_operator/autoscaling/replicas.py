"""The outer loop: replicas, from demand over capacity.

The shape is that of the Kubernetes HorizontalPodAutoscaler (tolerance, stabilization windows, step limits); what
differs is the metric, sequences wanted over sequences sustained.
"""

import math
from dataclasses import dataclass, replace

from paternoster_operator.api.v1alpha1 import AutoscalingMode
from paternoster_operator.autoscaling.decision import Evaluation, LawState, LoopDecision, Reason, is_early
from paternoster_operator.autoscaling.demand import Need, replicas_needed
from paternoster_operator.autoscaling.limits import (
    PERIOD_SECONDS,
    down_window,
    filled_within,
    kept_seconds,
    recommended_within,
    remember,
    startup_seconds,
    steps_left,
)
from paternoster_operator.autoscaling.policy import ReplicaPolicy, ScalingPolicy
from paternoster_operator.autoscaling.replica_model import replica_capacity
from paternoster_operator.autoscaling.signals import Signals


@dataclass(frozen=True, slots=True)
class _Verdict:
    target: int
    recommended: int
    reason: Reason
    message: str
    limited_by: tuple[Reason, ...] = ()
    need: Need | None = None
    """What the formula found; None where it was not computed."""


def decide_replicas(
    policy: ScalingPolicy, signals: Signals, state: LawState, now: float
) -> tuple[LoopDecision | None, LawState]:
    """The replica loop's word, or None when it is off or not due."""
    loop = policy.replicas
    if loop is None:
        return None, replace(state, replicas=policy.fixed_replicas)
    bounded = min(max(state.replicas, loop.lowest), loop.highest)
    wakes = state.replicas == 0 and signals.held > 0
    urgent = wakes or (state.replicas > 0 and loop.mode is AutoscalingMode.AUTO and _sleeps(loop, signals, state, now))
    if bounded == state.replicas and is_early(now, state.replicas_due, PERIOD_SECONDS) and not urgent:
        return None, state
    state = replace(state, replicas_due=now + PERIOD_SECONDS)
    if bounded != state.replicas:
        verdict = _into_bounds(loop, state.replicas, bounded)
    else:
        verdict, state = _judge(policy, loop, signals, state, now)
    decision = _decision(loop, signals, state, verdict)
    if decision.target != state.replicas and decision.applied:
        changes = (*state.changes, (now, decision.target - state.replicas))
        ordered = now if decision.target > state.replicas else state.ordered
        state = replace(state, replicas=decision.target, changes=changes, ordered=ordered)
    return decision, state


def _decision(loop: ReplicaPolicy, signals: Signals, state: LawState, verdict: _Verdict) -> LoopDecision:
    changed, need = verdict.target != state.replicas, verdict.need
    return LoopDecision(
        loop="Replicas",
        current=state.replicas,
        target=verdict.target,
        recommended=verdict.recommended,
        reason=verdict.reason,
        message=f"replicas {state.replicas}->{verdict.target}: {verdict.message}" if changed else verdict.message,
        limited_by=verdict.limited_by,
        inputs=_inputs(signals, state.cap, need),
        applied=loop.mode is AutoscalingMode.AUTO,
        utilization=0.0 if need is None else need.ratio(state.replicas),
        formula="" if need is None else need.formula,
        otherwise=f"{verdict.recommended} replicas" if verdict.recommended != verdict.target else "",
    )


def seconds_idle(signals: Signals, state: LawState, now: float) -> float:
    """Since the fleet last had a request; since this memory began where none is known of."""
    return now - (state.since if signals.last_request is None else signals.last_request)


def _sleeps(loop: ReplicaPolicy, signals: Signals, state: LawState, now: float) -> bool:
    """Whether the fleet has had no request for as long as ``idleSeconds``, and has none now."""
    return (
        loop.idle_seconds is not None
        and signals.demand == 0
        and signals.current
        and seconds_idle(signals, state, now) >= loop.idle_seconds
    )


def _into_bounds(loop: ReplicaPolicy, current: int, bounded: int) -> _Verdict:
    if bounded > current:
        reason, bound = Reason.MIN_REPLICAS, "minReplicas"
    else:
        reason = _upper_limit(loop)
        bound = "budget.maxGPUs" if reason is Reason.GPU_BUDGET else "maxReplicas"
    return _Verdict(bounded, bounded, reason, f"{bound} allows {bounded}", (reason,))


def _upper_limit(loop: ReplicaPolicy) -> Reason:
    over_budget = loop.budget is not None and loop.budget < loop.maximum
    return Reason.GPU_BUDGET if over_budget else Reason.MAX_REPLICAS


def _judge(
    policy: ScalingPolicy, loop: ReplicaPolicy, signals: Signals, state: LawState, now: float
) -> tuple[_Verdict, LawState]:
    current = state.replicas
    if signals.ready == 0 and signals.held == 0 and current > 0:
        return _Verdict(current, current, Reason.INSUFFICIENT_DATA, "no replica is ready"), state
    if signals.ready > 0 and not signals.fresh:
        explanation = f"no recent numbers from {', '.join(signals.stale_pods)}"
        return _Verdict(current, current, Reason.METRICS_STALE, explanation), state
    if loop.idle_seconds is not None and _sleeps(loop, signals, state, now):
        return _Verdict(0, 0, Reason.SCALE_TO_ZERO_IDLE, f"no request for {loop.idle_seconds:.0f} s"), state
    if current == 0 and signals.held == 0:
        return _Verdict(0, 0, Reason.SCALE_TO_ZERO_IDLE, "no request waits"), state
    need = replicas_needed(policy, loop, signals, state, now)
    wanted, reason, explanation = _wanted(policy, loop, signals, state, need)
    # The cap may let a replica run more than it sustains.
    filled = min(math.ceil(signals.running / replica_capacity(policy, state.model).sequences), signals.ready)
    state = remember(loop, state, Evaluation(now, wanted, filled))
    if wanted > current:
        verdict = _up(loop, signals, state, now, wanted, reason, explanation)
    elif wanted < current:
        verdict = _down(loop, signals, state, now, wanted, explanation)
    else:
        verdict = _Verdict(current, current, Reason.WITHIN_TOLERANCE, f"{explanation}, target {need.utilization:.0%}")
    return replace(verdict, need=need), state


def _wanted(
    policy: ScalingPolicy, loop: ReplicaPolicy, signals: Signals, state: LawState, need: Need
) -> tuple[int, Reason, str]:
    """The formula's number after tolerance, or one more where only that can help."""
    current = state.replicas
    if current == 0:
        return need.replicas, Reason.ACTIVATED_BY_REQUEST, f"{signals.held} requests wait for a replica"
    ratio = need.ratio(current)
    wanted = need.replicas
    if abs(ratio - need.utilization) <= loop.tolerance * need.utilization:
        wanted = current
    explanation = need.compared(current)
    if wanted > current:
        return wanted, Reason.DEMAND_ABOVE_TARGET, f"{explanation} > {need.utilization:.0%}"
    if state.wants_replica:
        return current + 1, Reason.PREEMPTION_ABOVE_TARGET, _storm(signals)
    if wanted < current:
        return wanted, Reason.DEMAND_BELOW_TARGET, f"{explanation} < {need.utilization:.0%}"
    return current, Reason.WITHIN_TOLERANCE, explanation


def _storm(signals: Signals) -> str:
    return f"{signals.preemption_rate:.1%} preempted with the cap at its floor"


def _up(
    loop: ReplicaPolicy,
    signals: Signals,
    state: LawState,
    now: float,
    wanted: int,
    reason: Reason,
    explanation: str,
) -> _Verdict:
    current = state.replicas
    limited: list[Reason] = []
    target = wanted
    if target > loop.highest:
        target = loop.highest
        limited.append(_upper_limit(loop))
    if target <= current:
        message = f"{explanation}, but {current} replicas are the most allowed"
        return _Verdict(current, wanted, limited[0], message, tuple(limited))
    window = loop.scale_up.stabilization_window_seconds
    steady = min(recommended_within(state, now, window), default=current)
    if reason is not Reason.ACTIVATED_BY_REQUEST and (now - state.since < window or steady <= current):
        return _Verdict(current, wanted, Reason.STABILIZING, f"{explanation}, not yet for {window} s", tuple(limited))
    up = loop.scale_up
    allowed = steps_left(state, now, up.period_seconds, up.max_percent, up.max_pods, +1)
    target = min(target, max(steady, 1))
    if target > current + allowed:
        target = current + allowed
        limited.append(Reason.STEP_LIMITED)
    if target <= current:
        waits = Reason.PENDING_REPLICAS if signals.pending else Reason.STEP_LIMITED
        return _Verdict(current, wanted, waits, f"{explanation}, but as many as allowed were added", tuple(limited))
    return _Verdict(target, wanted, reason, explanation, tuple(limited))


def _down(
    loop: ReplicaPolicy, signals: Signals, state: LawState, now: float, wanted: int, explanation: str
) -> _Verdict:
    current = state.replicas

    def kept(reason: Reason, message: str) -> _Verdict:
        return _Verdict(current, wanted, reason, f"{explanation}, {message}", (reason,))

    if loop.lowest >= current:
        return kept(Reason.MIN_REPLICAS, f"and {current} replicas are the fewest allowed")
    if signals.pending and signals.queued + signals.refused > 0:
        unserved = f"{signals.waiting} wait, {signals.held} are held, {signals.refused} were refused"
        return kept(Reason.PENDING_REPLICAS, f"but {unserved}, and {signals.pending} are on their way")
    window = down_window(loop, signals)
    if signals.pending:
        # Nothing is called back that may be wanted again before it would have served.
        window = max(window, startup_seconds(signals))
    steady = max(recommended_within(state, now, window), default=current)
    if now - state.since < window or steady >= current:
        return kept(Reason.STABILIZING, f"not yet for {window:.0f} s")
    seconds = kept_seconds(loop, signals)
    filled = 0 if seconds is None else filled_within(state, seconds)
    if filled >= current:
        return kept(Reason.STABILIZING, f"but {filled} were filled within {seconds:.0f} s")
    down = loop.scale_down
    allowed = steps_left(state, now, down.period_seconds, down.max_percent, down.max_pods, -1)
    bounds = [
        (loop.lowest, Reason.MIN_REPLICAS),
        (max(steady, filled), Reason.STABILIZING),
        (current - allowed, Reason.STEP_LIMITED),
    ]
    if signals.pending:
        # Those on their way can be called back; those that serve stay until it is seen that they are enough.
        bounds.append((signals.ready, Reason.PENDING_REPLICAS))
    target = min(max(wanted, *(bound for bound, _ in bounds)), current)
    limited = tuple(reason for bound, reason in bounds if wanted < bound and bound >= target)
    if target >= current:
        taken = f"{signals.pending} are still on their way" if signals.pending else "as many as allowed were taken"
        return _Verdict(current, wanted, limited[-1], f"{explanation}, but {taken}", limited)
    return _Verdict(target, wanted, Reason.DEMAND_BELOW_TARGET, explanation, limited)


def _inputs(signals: Signals, cap: int, need: Need | None) -> dict[str, str]:
    inputs = {
        "running": str(signals.running),
        "waiting": str(signals.waiting),
        "held": str(signals.held),
        "refused": str(signals.refused),
        "arrived": str(signals.arrived),
        "departed": str(signals.departed),
        "ready": str(signals.ready),
        "pending": str(signals.pending),
        "cap": str(cap),
        "preemptionRate": f"{signals.preemption_rate:.1%}",
        "kvUsage": f"{signals.kv_usage:.0%}",
    }
    return inputs if need is None else {**inputs, "replicaCapacity": str(need.capacity)}
