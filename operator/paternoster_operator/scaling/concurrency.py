"""The inner loop: the live cap, from preemptions. Multiplicative decrease, additive increase, as in TCP (RFC 5681)."""

from dataclasses import replace

from paternoster_operator.api.v1alpha1 import ConcurrencyMode
from paternoster_operator.scaling.decision import LawState, LoopDecision, Reason
from paternoster_operator.scaling.policy import CapPolicy
from paternoster_operator.scaling.signals import Signals

PERIOD_SECONDS = 5.0
"""Three times faster than the replica loop, so that a cap has settled before replicas are judged by it."""
STORM_RATE = 0.05
"""Preemption rate above which tail latency can be worse than static batching; at the floor, only replicas help."""
CALM_WINDOWS = 2
"""Windows without a cut before the cap is raised: probing upwards is slower than backing off."""


def observation_window(policy: CapPolicy, state: LawState, now: float) -> float:
    """Seconds to look back: never past the last change, whose effect is what matters."""
    since_change = policy.window_seconds if state.cap_changed is None else now - state.cap_changed
    return min(policy.window_seconds, max(since_change, 0.0))


def decide_cap(
    policy: CapPolicy, signals: Signals, state: LawState, now: float
) -> tuple[LoopDecision | None, LawState]:
    """The cap loop's word, or None when it is off or not due."""
    if policy.mode is ConcurrencyMode.FIXED:
        return None, replace(state, cap=policy.initial, wants_replica=False)
    bounded = min(max(state.cap, policy.minimum), policy.maximum)
    if bounded == state.cap and now < state.cap_due:
        return None, state
    applied = policy.mode is ConcurrencyMode.AUTO
    target, reason, message, limited_by = _judge(policy, signals, replace(state, cap=bounded), now)
    decision = LoopDecision(
        loop="Concurrency",
        current=state.cap,
        target=target,
        recommended=target,
        reason=reason,
        message=f"max_num_seqs {state.cap}->{target}: {message}" if target != state.cap else message,
        limited_by=limited_by,
        inputs=_inputs(policy, signals),
        applied=applied,
    )
    storm = reason is Reason.AT_FLOOR and signals.preemption_rate > STORM_RATE
    state = replace(state, cap_due=now + PERIOD_SECONDS, wants_replica=storm)
    if target != state.cap and applied:
        cut = now if target < state.cap else state.cap_cut
        state = replace(state, cap=target, cap_changed=now, cap_cut=cut)
    return decision, state


Verdict = tuple[int, Reason, str, tuple[Reason, ...]]


def _judge(policy: CapPolicy, signals: Signals, state: LawState, now: float) -> Verdict:
    cap = state.cap
    if signals.ready == 0:
        return cap, Reason.INSUFFICIENT_DATA, "no replica is ready", ()
    if not signals.fresh:
        return cap, Reason.METRICS_STALE, f"no recent numbers from {', '.join(signals.stale_pods)}", ()
    if state.cap_changed is not None and now - state.cap_changed < policy.cooldown_seconds:
        return cap, Reason.STABILIZING, f"changed {now - state.cap_changed:.0f} s ago", ()
    evidence = max(signals.finished, signals.preempted)
    rate = signals.preemption_rate
    said = f"{signals.preempted} of {evidence} requests preempted = {rate:.1%}"
    if signals.preempted > 0 and rate > policy.preemption_target:
        if evidence < policy.min_finished:
            return cap, Reason.INSUFFICIENT_DATA, f"{said}, too few to judge by", ()
        return _cut(policy, signals, cap, f"{said} > {policy.preemption_target:.1%}")
    if signals.preempted > 0:
        return cap, Reason.WITHIN_TOLERANCE, f"{said} <= {policy.preemption_target:.1%}", ()
    return _raise(policy, signals, state, now)


def _cut(policy: CapPolicy, signals: Signals, cap: int, said: str) -> Verdict:
    if cap <= policy.minimum:
        return cap, Reason.AT_FLOOR, f"{said}, and the cap is at its floor {policy.minimum}", ()
    # From what really ran: a cap far above it could be cut many times before anything changed.
    ran = min(cap, max(signals.peak_running, policy.minimum))
    target = max(policy.minimum, min(cap - 1, int(ran * (1 - policy.decrease))))
    return target, Reason.PREEMPTION_ABOVE_TARGET, said, (Reason.AT_FLOOR,) if target == policy.minimum else ()


def _raise(policy: CapPolicy, signals: Signals, state: LawState, now: float) -> Verdict:
    cap = state.cap
    if signals.waiting == 0:
        return cap, Reason.WITHIN_TOLERANCE, "no preemptions and no queue", ()
    if cap >= policy.maximum:
        return cap, Reason.AT_CAPACITY, f"{signals.waiting} waiting, and the cap is at its highest {policy.maximum}", ()
    # Memory grows with what runs: as many as would bring it to the high-water mark, and no more.
    room = policy.maximum
    if signals.kv_peak_usage > 0:
        room = int(policy.kv_high_watermark / signals.kv_peak_usage * signals.peak_running)
    if room <= cap:
        said = f"{signals.waiting} waiting, but {signals.peak_running} sequences used {signals.kv_peak_usage:.0%} of KV"
        return cap, Reason.KV_HIGH_WATERMARK, said, ()
    if state.cap_cut is not None and now - state.cap_cut < CALM_WINDOWS * policy.window_seconds:
        return cap, Reason.STABILIZING, f"cut {now - state.cap_cut:.0f} s ago", ()
    target = min(cap + policy.increase_step, policy.maximum, room)
    said = f"no preemptions, {signals.waiting} waiting, KV use {signals.kv_peak_usage:.0%}"
    return target, Reason.HEADROOM_AVAILABLE, said, (Reason.AT_CAPACITY,) if target == policy.maximum else ()


def _inputs(policy: CapPolicy, signals: Signals) -> dict[str, str]:
    return {
        "preempted": str(signals.preempted),
        "finished": str(signals.finished),
        "preemptionTarget": f"{policy.preemption_target:.1%}",
        "waiting": str(signals.waiting),
        "peakRunning": str(signals.peak_running),
        "kvPeakUsage": f"{signals.kv_peak_usage:.0%}",
        "windowSeconds": f"{signals.window_seconds:.0f}",
    }
