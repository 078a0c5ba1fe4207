"""The live cap, from preemptions.

With the objective PreemptionRate the cap is cut until memory has room at its fullest moment. With Goodput no preemption
cuts it: a cut never makes first tokens come sooner, and in all simulations the tokens that are computed twice cost less
than slots that stay empty. With either it is cut where steps are too long without any prompt in them.
"""

import math
from dataclasses import dataclass, replace

from paternoster_contract.stats import Unreported
from paternoster_operator.api.v1alpha1 import ConcurrencyMode, ConcurrencyObjective
from paternoster_operator.autoscaling.control_loop import (
    LoopState,
    LoopStates,
    Outcome,
    hold_after,
    hold_without,
    hold_without_numbers,
)
from paternoster_operator.autoscaling.decision import LIVE_CAP, LoopDecision, Reason
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import CapPolicy, ScalingPolicy, SloPolicy
from paternoster_operator.autoscaling.replica_model import ReplicaModel, decode_room, kv_room
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCapState(LoopState):
    """What the loop remembers."""

    cut: float | None = None
    """When the cap was cut last, or that cut's last sequence above the cap ended."""


def evidence_seconds(policy: CapPolicy, state: LoopState | None, now: float, tuning: Tuning) -> float:
    """Seconds over which preemptions count: never past the last change, whose effect is what matters."""
    longest = tuning.evidence_windows * policy.window_seconds
    if state is None or state.changed is None:
        return longest
    return min(longest, max(now - state.changed, 0.0))


@dataclass(frozen=True, slots=True)
class LiveCapLoop:
    """Moves the live cap of every engine."""

    policy: ScalingPolicy
    tuning: Tuning
    name: str = LIVE_CAP

    @property
    def period(self) -> float:
        return self.tuning.engine_period_seconds

    def adopt(self, observation: Observation, signals: Signals, state: LiveCapState | None) -> LiveCapState:
        """At first what the engines have, or had when a status was last written."""
        if state is not None:
            return state
        return LiveCapState(target=signals.lowest_cap or observation.live_cap or self.policy.cap.initial)

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, LiveCapState]:
        """The decision, None while the loop is off or not due."""
        loop, state = self.policy.cap, states.find(LiveCapState)
        if loop.held is not None:
            state = replace(state, target=loop.held)
        if loop.mode is ConcurrencyMode.FIXED:
            return None, replace(state, needs_replica=False)
        bounded = min(max(state.target, loop.minimum), loop.maximum)
        if bounded == state.target and state.is_early(now, self.period):
            return None, state
        if _is_draining(signals, state):
            # A cut counts from when its last sequence ended, and so does what is observed of it.
            state = replace(state, changed=now, cut=now)
        found = self._decide(signals, models.replica, replace(state, target=bounded), now)
        if found.target == bounded != state.target:
            allowed = f"the manifest allows {loop.minimum} to {loop.maximum}"
            found = replace(found, reason=Reason.BOUNDS_CHANGED, message=allowed)
        applied = loop.mode is ConcurrencyMode.AUTO
        too_many = signals.preemption_rate > self.tuning.replica_preemption_rate
        decision = found.decide(
            self.name,
            "live cap",
            state.target,
            inputs=_inputs(loop, signals),
            applied=applied,
            needs_replica=applied and found.reason is Reason.AT_FLOOR and too_many,
        )
        cut = now if decision.applied and found.target < state.target else state.cut
        return decision, replace(state.after(decision, now, self.period), cut=cut)

    def _decide(self, signals: Signals, model: ReplicaModel, state: LiveCapState, now: float) -> Outcome:
        loop, cap, slo = self.policy.cap, state.target, self.policy.slo
        if (silence := hold_without_numbers(signals, cap)) is not None:
            return silence
        if (blind := hold_without(Unreported.PREEMPTIONS, signals, cap)) is not None:
            return blind
        if _is_draining(signals, state):
            above = f"held until the {signals.above_cap} sequences above the cap have ended"
            return Outcome(cap, Reason.STABILIZING, above)
        if (held := hold_after("changed", state.changed, loop.cooldown_seconds, cap, now)) is not None:
            return held
        evidence = max(signals.finished, signals.preempted)
        rate, target = signals.preemption_rate, loop.preemption_target
        explanation = (
            f"{signals.preempted} of {evidence} requests preempted in {signals.window_seconds:.0f} s = {rate:.1%}"
        )
        # One standard deviation of a count of rare events: a single preemption among few requests may be chance.
        doubt = math.sqrt(signals.preempted)
        slow = _explain_late_tokens(slo, signals)
        if loop.objective is ConcurrencyObjective.PREEMPTION_RATE and rate > target:
            if evidence < loop.min_finished or signals.preempted - doubt <= target * evidence:
                return Outcome(cap, Reason.INSUFFICIENT_DATA, f"{explanation}; too few to be more than chance")
            fits = _room_after_preemptions(loop, signals, model, cap)
            return _cut(loop, cap, fits, Reason.PREEMPTION_ABOVE_TARGET, f"{explanation} > {target:.1%}")
        if slow is not None:
            # Where prompts make steps long, the token budget is what helps, and no cut of the cap does.
            room = decode_room(slo, model)
            if room is not None and room < cap:
                return _cut(
                    loop, cap, max(int(room), int(cap * (1 - loop.decrease))), Reason.LATENCY_ABOVE_TARGET, slow
                )
        if signals.preempted + doubt > target / 2 * evidence:
            return Outcome(cap, Reason.WITHIN_TOLERANCE, f"{explanation}, target {target:.1%}")
        return self._raise(signals, model, cap)

    def _raise(self, signals: Signals, model: ReplicaModel, cap: int) -> Outcome:
        loop = self.policy.cap
        if signals.waiting == 0:
            return Outcome(cap, Reason.WITHIN_TOLERANCE, "few preemptions and no queue")
        if cap >= loop.maximum:
            highest = f"{signals.waiting} waiting; {loop.maximum} sequences are the most allowed"
            return Outcome(cap, Reason.AT_CAPACITY, highest)
        room, bound, explanation = self._room(signals, model)
        if room <= cap:
            return Outcome(cap, bound, explanation)
        # Half of the way, where the way is long: after a change of the traffic steps alone take minutes.
        target = min(max(cap + loop.increase_step, (cap + room) // 2), room)
        explanation = (
            f"{signals.waiting} waiting, {signals.preempted} preempted in {signals.window_seconds:.0f} s, "
            f"{signals.kv_peak_usage:.0%} of the KV pool used at most"
        )
        limited = (Reason.AT_CAPACITY,) if target == loop.maximum else ()
        return Outcome(target, Reason.HEADROOM_AVAILABLE, explanation, limited)

    def _room(self, signals: Signals, model: ReplicaModel) -> tuple[int, Reason, str]:
        """How high the cap may go, what bounds it, and an explanation."""
        loop, waiting = self.policy.cap, f"{signals.waiting} waiting"
        rooms = [(loop.maximum, Reason.AT_CAPACITY, waiting)]
        running, usage = _memory_used(loop, signals)
        if usage > 0:
            # Memory grows with what runs: as many as would bring it to the high-water mark.
            room = int(min(loop.maximum, loop.kv_high_watermark / usage * running))
            explanation = f"{waiting}; {running:.0f} sequences used {usage:.0%} of the KV pool"
            rooms.append((room, Reason.KV_HIGH_WATERMARK, explanation))
        if (fit := decode_room(self.policy.slo, model)) is not None and fit < math.inf:
            explanation = f"{waiting}; more than {fit:.0f} sequences would exceed the limit between tokens"
            rooms.append((int(fit), Reason.LATENCY_ABOVE_TARGET, explanation))
        return min(rooms, key=lambda room: room[0])


def _is_draining(signals: Signals, state: LiveCapState) -> bool:
    """Whether the last change was a cut above which sequences still run: a cut preempts none, so they have to end."""
    return signals.above_cap > 0 and state.cut is not None and state.changed == state.cut


def _room_after_preemptions(loop: CapPolicy, signals: Signals, model: ReplicaModel, cap: int) -> int:
    """Sequences that memory has room for; no fewer than ``decrease`` below those that ran.

    From what really ran: a cap far above it could be cut many times before anything changed.
    """
    ran = min(cap, max(signals.peak_running, loop.minimum))
    # A preemption finds the pool full, so this share would have filled it to the high-water mark; and no less is cut
    # than a raise adds, or raises would outrun cuts.
    room = min(ran * loop.kv_high_watermark, ran - loop.increase_step)
    if (learnt := kv_room(loop, model)) is not None:
        room = min(room, learnt)
    return int(max(room, ran * (1 - loop.decrease)))


def _explain_late_tokens(slo: SloPolicy | None, signals: Signals) -> str | None:
    """An explanation if tokens come more slowly than the limit allows, else None."""
    if slo is None or slo.itl is None:
        return None
    mean = signals.inter_token_seconds
    if mean is None or mean <= slo.itl:
        return None
    return f"{mean * 1000:.0f} ms between tokens > {slo.itl * 1000:.0f} ms"


def _cut(loop: CapPolicy, cap: int, target: int, reason: Reason, explanation: str) -> Outcome:
    if cap <= loop.minimum:
        return Outcome(cap, Reason.AT_FLOOR, f"{explanation}; {loop.minimum} sequences are the fewest allowed")
    target = max(loop.minimum, min(cap - 1, target))
    return Outcome(target, reason, explanation, (Reason.AT_FLOOR,) if target == loop.minimum else ())


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
        "serving": str(signals.ready),
        "preempted": str(signals.preempted),
        "finished": str(signals.finished),
        "preemptionTarget": f"{policy.preemption_target:.1%}",
        "recomputedTokens": f"{signals.recomputed_share:.1%}",
        "waiting": str(signals.waiting),
        "held": str(signals.held),
        "peakRunning": f"{signals.peak_running} sequences",
        "kvPeakUsage": f"{signals.kv_peak_usage:.0%}",
        "windowSeconds": f"{signals.window_seconds:.0f}",
    }
