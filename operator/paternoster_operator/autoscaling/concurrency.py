"""The inner loop: the live cap, from preemptions.

The preemption rate asks whether the cap is too high. With the objective Goodput what users wait for answers: the cap is
cut, to the sequences that fill the KV pool on average, only where preemptions make tokens late. A cut never makes first
tokens come sooner, and in whatever was simulated the tokens that are computed twice cost less than places that stay
empty. With PreemptionRate the rate itself answers, and the cap is cut until memory has room at its fullest moment.
"""

import math
from dataclasses import replace

from paternoster_operator.api.v1alpha1 import ConcurrencyMode, ConcurrencyObjective
from paternoster_operator.autoscaling.decision import LawState, LoopDecision, Reason, is_early, is_recent
from paternoster_operator.autoscaling.policy import CapPolicy, ScalingPolicy, SloPolicy
from paternoster_operator.autoscaling.replica_model import decode_room, kv_room
from paternoster_operator.autoscaling.signals import Signals

PERIOD_SECONDS = 5.0
"""Three times faster than the replica loop, so that a cap has settled before replicas are judged by it."""
STORM_RATE = 0.05
"""Preemption rate above which tail latency can be worse than static batching; at the floor, only replicas help."""
CALM_WINDOWS = 2
"""Windows without a cut before the cap is raised: probing upwards is slower than backing off."""

EVIDENCE_WINDOWS = 4
"""Windows over which evidence adds up while the cap stands: a quiet fleet needs that long to know a rate of 2 %."""


def longest_window(policy: CapPolicy) -> float:
    """Seconds for which samples are of use."""
    return EVIDENCE_WINDOWS * policy.window_seconds


def observation_window(policy: CapPolicy, state: LawState, now: float) -> float:
    """Seconds to look back for preemptions: never past the last change, whose effect is what matters."""
    since_change = longest_window(policy) if state.cap_changed is None else now - state.cap_changed
    return min(longest_window(policy), max(since_change, 0.0))


def decide_cap(
    policy: ScalingPolicy, signals: Signals, state: LawState, now: float
) -> tuple[LoopDecision | None, LawState]:
    """The cap loop's word, or None when it is off or not due."""
    loop = policy.cap
    if loop.mode is ConcurrencyMode.FIXED:
        return None, replace(state, cap=loop.initial, wants_replica=False)
    bounded = min(max(state.cap, loop.minimum), loop.maximum)
    if bounded == state.cap and is_early(now, state.cap_due, PERIOD_SECONDS):
        return None, state
    applied = loop.mode is ConcurrencyMode.AUTO
    if _draining(signals, state):
        # A cut counts from when it is through, and so does what is seen of it.
        state = replace(state, cap_changed=now, cap_cut=now)
    target, reason, message, limited_by = _judge(policy, signals, replace(state, cap=bounded), now)
    if target == bounded != state.cap:
        reason, message = Reason.BOUNDS_CHANGED, f"the manifest allows {loop.minimum} to {loop.maximum}"
    decision = LoopDecision(
        loop="Concurrency",
        current=state.cap,
        target=target,
        recommended=target,
        reason=reason,
        message=f"max_num_seqs {state.cap}->{target}: {message}" if target != state.cap else message,
        limited_by=limited_by,
        inputs=_inputs(loop, signals),
        applied=applied,
    )
    storm = reason is Reason.AT_FLOOR and signals.preemption_rate > STORM_RATE
    state = replace(state, cap_due=now + PERIOD_SECONDS, wants_replica=storm)
    if target != state.cap and applied:
        cut = now if target < state.cap else state.cap_cut
        state = replace(state, cap=target, cap_changed=now, cap_cut=cut)
    return decision, state


Verdict = tuple[int, Reason, str, tuple[Reason, ...]]


def _judge(policy: ScalingPolicy, signals: Signals, state: LawState, now: float) -> Verdict:
    loop, cap = policy.cap, state.cap
    if signals.ready == 0:
        return cap, Reason.INSUFFICIENT_DATA, "no replica is ready", ()
    if not signals.fresh:
        return cap, Reason.METRICS_STALE, f"no recent numbers from {', '.join(signals.stale_pods)}", ()
    if _draining(signals, state):
        return cap, Reason.STABILIZING, f"cut, but {signals.above_cap} sequences above the cap have not ended yet", ()
    if state.cap_changed is not None and is_recent(now, state.cap_changed, loop.cooldown_seconds):
        return cap, Reason.STABILIZING, f"changed {now - state.cap_changed:.0f} s ago", ()
    evidence = max(signals.finished, signals.preempted)
    rate, target = signals.preemption_rate, loop.preemption_target
    explanation = f"{signals.preempted} of {evidence} requests preempted = {rate:.1%}"
    # One standard deviation of a count of rare events: a single preemption among few requests may be chance.
    doubt = math.sqrt(signals.preempted)
    slow = _too_slow(policy.slo, signals)
    if signals.preempted > 0 and rate > target:
        if loop.objective is ConcurrencyObjective.PREEMPTION_RATE:
            if evidence < loop.min_finished or signals.preempted - doubt <= target * evidence:
                return cap, Reason.INSUFFICIENT_DATA, f"{explanation}, too few to judge by", ()
            kept = _fitting(loop, signals, state)
            return _cut(loop, cap, kept, Reason.PREEMPTION_ABOVE_TARGET, f"{explanation} > {target:.1%}")
        if slow is not None and _in_pace(policy.slo, signals, state):
            if signals.window_seconds < loop.window_seconds:
                return cap, Reason.INSUFFICIENT_DATA, f"{slow}, seen for {signals.window_seconds:.0f} s only", ()
            return _cut_to_fill(loop, signals, cap, f"{explanation}, {slow}")
    if slow is not None:
        # Where prompts make steps long, the token budget is what helps, and no cut of the cap does.
        room = decode_room(policy.slo, state.model)
        if room is not None and room < cap:
            return _cut(loop, cap, max(int(room), int(cap * (1 - loop.decrease))), Reason.LATENCY_ABOVE_TARGET, slow)
    if signals.preempted + doubt > target / 2 * evidence:
        return cap, Reason.WITHIN_TOLERANCE, f"{explanation}, target {target:.1%}", ()
    return _raise(policy, signals, state, now)


def _in_pace(slo: SloPolicy | None, signals: Signals, state: LawState) -> bool:
    """Whether steps are short enough for the limit between tokens, so that it is preemptions that make them late."""
    pace = state.model.pace(signals.mean_running / max(len(signals.replicas), 1))
    return slo is not None and slo.itl is not None and pace is not None and pace <= slo.itl


def _cut_to_fill(loop: CapPolicy, signals: Signals, cap: int, explanation: str) -> Verdict:
    """Down to the sequences that fill the KV pool on average."""
    running, usage = _memory_used(loop, signals)
    fill = math.ceil(running / usage) if usage > 0 else cap
    if fill >= cap:
        return cap, Reason.WITHIN_TOLERANCE, f"{explanation}, but {cap} sequences do no more than fill the KV pool", ()
    return _cut(loop, cap, fill, Reason.PREEMPTION_ABOVE_TARGET, f"{explanation}; {fill} sequences fill the KV pool")


def _draining(signals: Signals, state: LawState) -> bool:
    """Whether the last change was a cut that is not through: it puts nobody out, so what ran above it has to end."""
    return signals.above_cap > 0 and state.cap_cut is not None and state.cap_changed == state.cap_cut


def _fitting(loop: CapPolicy, signals: Signals, state: LawState) -> int:
    """Sequences that memory has room for, after preemptions; no fewer than ``decrease`` below those that ran.

    From what really ran: a cap far above it could be cut many times before anything changed.
    """
    ran = min(state.cap, max(signals.peak_running, loop.minimum))
    # Whoever is preempted found the pool full, so this share would have filled it to the high-water mark; and no less
    # is taken than a raise adds, or raises would outrun cuts.
    room = min(ran * loop.kv_high_watermark, ran - loop.increase_step)
    if (learnt := kv_room(loop, state.model)) is not None:
        room = min(room, learnt)
    return int(max(room, ran * (1 - loop.decrease)))


def _too_slow(slo: SloPolicy | None, signals: Signals) -> str | None:
    """Return an explanation if tokens come more slowly than the limit allows, else None."""
    if slo is None or slo.itl is None:
        return None
    mean = signals.inter_token_seconds
    if mean is None or mean <= slo.itl:
        return None
    return f"{mean * 1000:.0f} ms between tokens > {slo.itl * 1000:.0f} ms"


def _cut(loop: CapPolicy, cap: int, target: int, reason: Reason, explanation: str) -> Verdict:
    if cap <= loop.minimum:
        return cap, Reason.AT_FLOOR, f"{explanation}, and the cap is at its floor {loop.minimum}", ()
    target = max(loop.minimum, min(cap - 1, target))
    return target, reason, explanation, (Reason.AT_FLOOR,) if target == loop.minimum else ()


def _raise(policy: ScalingPolicy, signals: Signals, state: LawState, now: float) -> Verdict:
    loop, cap = policy.cap, state.cap
    if signals.waiting == 0:
        return cap, Reason.WITHIN_TOLERANCE, "few preemptions and no queue", ()
    if cap >= loop.maximum:
        return cap, Reason.AT_CAPACITY, f"{signals.waiting} waiting, and the cap is at its highest {loop.maximum}", ()
    room, bound, explanation = _room(policy, signals, state)
    if room <= cap:
        return cap, bound, explanation, ()
    restless = CALM_WINDOWS * loop.window_seconds
    if state.cap_cut is not None and is_recent(now, state.cap_cut, restless):
        return cap, Reason.STABILIZING, f"cut {now - state.cap_cut:.0f} s ago", ()
    # Half of the way, where the way is known and long: after a change of the traffic steps alone take minutes.
    target = min(max(cap + loop.increase_step, (cap + room) // 2), room)
    explanation = f"{signals.preempted} preempted, {signals.waiting} waiting, KV use {signals.kv_peak_usage:.0%}"
    return target, Reason.HEADROOM_AVAILABLE, explanation, (Reason.AT_CAPACITY,) if target == loop.maximum else ()


def _room(policy: ScalingPolicy, signals: Signals, state: LawState) -> tuple[int, Reason, str]:
    """How high the cap may go, what bounds it, and in words."""
    loop, waiting = policy.cap, f"{signals.waiting} waiting"
    rooms = [(loop.maximum, Reason.AT_CAPACITY, waiting)]
    running, usage = _memory_used(loop, signals)
    if usage > 0:
        # Memory grows with what runs: as many as would bring it to the high-water mark.
        room = int(min(loop.maximum, loop.kv_high_watermark / usage * running))
        explanation = f"{waiting}, but {running:.0f} sequences used {usage:.0%} of KV"
        rooms.append((room, Reason.KV_HIGH_WATERMARK, explanation))
    if (fit := decode_room(policy.slo, state.model)) is not None and fit < math.inf:
        explanation = f"{waiting}, but more than {fit:.0f} sequences would be too slow"
        rooms.append((int(fit), Reason.LATENCY_ABOVE_TARGET, explanation))
    return min(rooms, key=lambda room: room[0])


def _memory_used(loop: CapPolicy, signals: Signals) -> tuple[float, float]:
    """(sequences, share of KV) of one replica.

    On average over all replicas and the window; of the fullest replica at its peak where few preemptions are the
    objective.
    """
    if loop.objective is ConcurrencyObjective.PREEMPTION_RATE or not signals.replicas:
        return signals.peak_running, signals.kv_peak_usage
    usage = sum(load.kv_usage for load in signals.replicas)
    return signals.mean_running / len(signals.replicas), usage / len(signals.replicas)


def _inputs(policy: CapPolicy, signals: Signals) -> dict[str, str]:
    return {
        "preempted": str(signals.preempted),
        "finished": str(signals.finished),
        "preemptionTarget": f"{policy.preemption_target:.1%}",
        "recomputedTokens": f"{signals.recomputed_share:.1%}",
        "waiting": str(signals.waiting),
        "peakRunning": str(signals.peak_running),
        "kvPeakUsage": f"{signals.kv_peak_usage:.0%}",
        "windowSeconds": f"{signals.window_seconds:.0f}",
    }
