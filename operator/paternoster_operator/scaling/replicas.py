"""The outer loop: replicas, from demand over capacity.

The shape is that of the Kubernetes HorizontalPodAutoscaler (tolerance, stabilization windows, step limits); what
differs is the metric, one ratio that knows of the live cap, and the look at the N-1 replicas that would remain.
"""

import math
from dataclasses import dataclass, replace

from paternoster_operator.api.v1alpha1 import AutoscalingMode
from paternoster_operator.scaling.decision import LawState, LoopDecision, Reason
from paternoster_operator.scaling.policy import ReplicaPolicy, ScalingPolicy
from paternoster_operator.scaling.signals import Signals

PERIOD_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class _Verdict:
    target: int
    recommended: int
    reason: Reason
    message: str
    limited_by: tuple[Reason, ...] = ()


def decide_replicas(
    policy: ScalingPolicy, signals: Signals, state: LawState, now: float
) -> tuple[LoopDecision | None, LawState]:
    """The replica loop's word, or None when it is off or not due."""
    loop = policy.replicas
    if loop is None:
        return None, replace(state, replicas=policy.fixed_replicas)
    bounded = min(max(state.replicas, loop.lowest), loop.highest)
    if bounded == state.replicas and now < state.replicas_due:
        return None, state
    state = replace(state, replicas_due=now + PERIOD_SECONDS)
    if bounded != state.replicas:
        verdict = _into_bounds(loop, state.replicas, bounded)
    else:
        verdict, state = _judge(policy, loop, signals, state, now)
    applied = loop.mode is AutoscalingMode.AUTO
    decision = LoopDecision(
        loop="Replicas",
        current=state.replicas,
        target=verdict.target,
        recommended=verdict.recommended,
        reason=verdict.reason,
        message=verdict.message,
        limited_by=verdict.limited_by,
        inputs=_inputs(signals, state.cap),
        applied=applied,
    )
    if verdict.target != state.replicas and applied:
        changes = (*state.changes, (now, verdict.target - state.replicas))
        state = replace(state, replicas=verdict.target, changes=changes)
    return decision, state


def _into_bounds(loop: ReplicaPolicy, current: int, bounded: int) -> _Verdict:
    if bounded > current:
        reason, bound = Reason.MIN_REPLICAS, "minReplicas"
    else:
        over_budget = loop.budget is not None and loop.budget < loop.maximum
        reason, bound = (Reason.GPU_BUDGET, "budget.maxGPUs") if over_budget else (Reason.MAX_REPLICAS, "maxReplicas")
    return _Verdict(bounded, bounded, reason, f"replicas {current}->{bounded}: {bound} allows {bounded}", (reason,))


def _judge(
    policy: ScalingPolicy, loop: ReplicaPolicy, signals: Signals, state: LawState, now: float
) -> tuple[_Verdict, LawState]:
    current = state.replicas
    if signals.ready == 0 and signals.held == 0:
        return _Verdict(current, current, Reason.INSUFFICIENT_DATA, "no replica is ready"), state
    if signals.ready > 0 and not signals.fresh:
        said = f"no recent numbers from {', '.join(signals.stale_pods)}"
        return _Verdict(current, current, Reason.METRICS_STALE, said), state
    # Without a queue a cut cap is no reason for replicas: what runs is drained, not turned away.
    per_replica = state.cap if signals.queued else max(state.cap, policy.cap.maximum)
    wanted = max(math.ceil(signals.demand / (loop.target_utilization * per_replica) - 1e-9), 1)
    ratio = signals.demand / (per_replica * max(current, 1))
    said = f"demand {signals.demand} / capacity {per_replica * current} = {ratio:.0%}"
    reason = Reason.DEMAND_ABOVE_TARGET
    if abs(ratio - loop.target_utilization) <= loop.tolerance * loop.target_utilization:
        wanted = current
    if state.wants_replica and wanted <= current:
        wanted, reason = current + 1, Reason.PREEMPTION_ABOVE_TARGET
        said = f"{signals.preemption_rate:.1%} preempted with the cap at its floor"
    state = _remember(loop, state, now, wanted)
    if wanted > current:
        return _up(loop, signals, state, now, wanted, reason, said), state
    if wanted < current:
        return _down(policy, loop, signals, state, now, wanted, said), state
    return _Verdict(current, current, Reason.WITHIN_TOLERANCE, f"{said}, target {loop.target_utilization:.0%}"), state


def _up(
    loop: ReplicaPolicy, signals: Signals, state: LawState, now: float, wanted: int, reason: Reason, said: str
) -> _Verdict:
    current = state.replicas
    said = f"{said} > {loop.target_utilization:.0%}" if reason is Reason.DEMAND_ABOVE_TARGET else said
    limited: list[Reason] = []
    target = wanted
    if target > loop.highest:
        target = loop.highest
        over_budget = loop.budget is not None and loop.budget < loop.maximum
        limited.append(Reason.GPU_BUDGET if over_budget else Reason.MAX_REPLICAS)
    if target <= current:
        return _Verdict(
            current, wanted, limited[0], f"{said}, but {current} replicas are the most allowed", tuple(limited)
        )
    window = loop.scale_up.stabilization_window_seconds
    steady = min(_recommended_within(state, now, window))
    if now - state.since < window or steady <= current:
        return _Verdict(current, wanted, Reason.STABILIZING, f"{said}, not yet for {window} s", tuple(limited))
    target = min(target, steady)
    allowed = _step_limit(
        state, now, loop.scale_up.period_seconds, loop.scale_up.max_percent, loop.scale_up.max_pods, +1
    )
    if target > current + allowed:
        target = current + allowed
        limited.append(Reason.STEP_LIMITED)
    if target <= current:
        waits = Reason.PENDING_REPLICAS if signals.pending else Reason.STEP_LIMITED
        return _Verdict(current, wanted, waits, f"{said}, but as many as allowed were added", tuple(limited))
    return _Verdict(target, wanted, reason, f"replicas {current}->{target}: {said}", tuple(limited))


def _down(
    policy: ScalingPolicy, loop: ReplicaPolicy, signals: Signals, state: LawState, now: float, wanted: int, said: str
) -> _Verdict:
    current = state.replicas
    said = f"{said} < {loop.target_utilization:.0%}"
    limited: list[Reason] = []
    target = wanted
    if target < loop.lowest:
        target = loop.lowest
        limited.append(Reason.MIN_REPLICAS)
    if target >= current:
        return _Verdict(
            current,
            wanted,
            Reason.MIN_REPLICAS,
            f"{said}, and {current} replicas are the fewest allowed",
            (Reason.MIN_REPLICAS,),
        )
    window = loop.scale_down.stabilization_window_seconds
    steady = max(_recommended_within(state, now, window))
    if now - state.since < window or steady >= current:
        return _Verdict(current, wanted, Reason.STABILIZING, f"{said}, not yet for {window} s", tuple(limited))
    target = max(target, steady)
    down = loop.scale_down
    allowed = _step_limit(state, now, down.period_seconds, down.max_percent, down.max_pods, -1)
    if target < current - allowed:
        target = current - allowed
        limited.append(Reason.STEP_LIMITED)
    if target >= current:
        return _Verdict(
            current, wanted, Reason.STEP_LIMITED, f"{said}, but as many as allowed were taken", tuple(limited)
        )
    refusal = _refusal(policy, signals, current, target)
    if refusal is not None:
        return _Verdict(current, wanted, Reason.CONSOLIDATION_REFUSED, f"{said}, but {refusal}", tuple(limited))
    return _Verdict(target, wanted, Reason.DEMAND_BELOW_TARGET, f"replicas {current}->{target}: {said}", tuple(limited))


def _refusal(policy: ScalingPolicy, signals: Signals, current: int, target: int) -> str | None:
    """Why the replicas that remained could not carry the load, or None."""
    if signals.pending:
        return f"{signals.pending} replicas are still on their way"
    if signals.queued:
        return f"{signals.queued} requests wait"
    if signals.preempted and signals.preemption_rate > policy.cap.preemption_target:
        return f"{signals.preemption_rate:.1%} of requests are preempted"
    kv = signals.kv_usage * current / target
    if kv >= policy.cap.kv_high_watermark:
        return f"KV use would be {kv:.0%}"
    return None


def _remember(loop: ReplicaPolicy, state: LawState, now: float, wanted: int) -> LawState:
    horizon = max(loop.scale_up.stabilization_window_seconds, loop.scale_down.stabilization_window_seconds)
    period = max(loop.scale_up.period_seconds, loop.scale_down.period_seconds)
    return replace(
        state,
        recommendations=(*(r for r in state.recommendations if r[0] >= now - horizon), (now, wanted)),
        changes=tuple(change for change in state.changes if change[0] > now - period),
    )


def _recommended_within(state: LawState, now: float, window: float) -> list[int]:
    return [wanted for when, wanted in state.recommendations if when >= now - window]


def _step_limit(state: LawState, now: float, period: float, percent: int, pods: int, sign: int) -> int:
    """How many replicas may still change in direction ``sign`` in this period; the larger of the two limits."""
    recent = sum(difference for when, difference in state.changes if when > now - period)
    done = sum(difference for when, difference in state.changes if when > now - period and difference * sign > 0) * sign
    at_begin = state.replicas - recent
    return max(0, max(pods, math.ceil(at_begin * percent / 100)) - done)


def _inputs(signals: Signals, cap: int) -> dict[str, str]:
    return {
        "running": str(signals.running),
        "waiting": str(signals.waiting),
        "held": str(signals.held),
        "ready": str(signals.ready),
        "pending": str(signals.pending),
        "cap": str(cap),
        "preemptionRate": f"{signals.preemption_rate:.1%}",
        "kvUsage": f"{signals.kv_usage:.0%}",
    }
