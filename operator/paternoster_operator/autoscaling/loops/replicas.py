"""The outer loop: replicas, from demand over capacity.

The shape is that of the Kubernetes HorizontalPodAutoscaler (tolerance, stabilization windows, step limits); what
differs is the metric, sequences wanted over sequences sustained.
"""

import math
from dataclasses import dataclass, replace

from paternoster_operator.api.v1alpha1 import AutoscalingMode
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates, Outcome, hold_without_numbers
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, LoopDecision, Reason
from paternoster_operator.autoscaling.loops.demand import Need, replicas_needed
from paternoster_operator.autoscaling.loops.limits import (
    Evaluation,
    ReplicaState,
    down_window,
    filled_window,
    filled_within,
    record_evaluation,
    seconds_until_steady,
    seconds_until_step,
    seconds_until_unfilled,
    startup_seconds,
    steps_left,
    wanted_within,
)
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ReplicaPolicy, ScalingPolicy
from paternoster_operator.autoscaling.replica_model import replica_capacity
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning


@dataclass(frozen=True, slots=True)
class ReplicaLoop:
    """Moves the number of replicas."""

    policy: ScalingPolicy
    tuning: Tuning
    name: str = REPLICAS

    @property
    def period(self) -> float:
        return self.tuning.replica_period_seconds

    def adopt_running(self, observation: Observation, signals: Signals, state: ReplicaState | None) -> ReplicaState:
        """The replicas of the Deployment at first, and whenever it has not those that were decided."""
        if state is None:
            return ReplicaState(target=observation.replicas, since=observation.now)
        if state.target == observation.replicas:
            return state
        # What was decided was not done, so no replica is on its way for it.
        return replace(state, target=observation.replicas, added=None, changes=())

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, ReplicaState]:
        """The decision, None while the loop is off or not due."""
        loop, state, cap = self.policy.replicas, states.find(ReplicaState), states[LIVE_CAP]
        if loop is None:
            return None, replace(state, target=self.policy.fixed_replicas)
        current = state.target
        bounded = min(max(current, loop.lowest), loop.highest)
        wakes = current == 0 and signals.held > 0
        sleeps = current > 0 and loop.mode is AutoscalingMode.AUTO and is_idle(loop, signals, state, now)
        if bounded == current and state.is_early(now, self.period) and not (wakes or sleeps):
            return None, state
        if bounded != current:
            found, need = _move_into_bounds(loop, current, bounded), None
        else:
            found, need, state = self._decide(loop, signals, models, state, cap, now)
        decision = found.decide(
            self.name,
            "replicas",
            current,
            inputs=_describe_inputs(signals, cap.target, need),
            applied=loop.mode is AutoscalingMode.AUTO,
            utilization=0.0 if need is None else need.ratio_at(current),
            formula="" if need is None else need.formula,
            otherwise="" if found.recommended in (None, found.target) else f"{found.recommended} replicas",
        )
        difference = found.target - current
        if difference and decision.applied:
            added = now if difference > 0 else state.added
            state = replace(state, changes=(*state.changes, (now, difference)), added=added)
        return decision, state.after_decision(decision, now, self.period)

    def _decide(
        self, loop: ReplicaPolicy, signals: Signals, models: Models, state: ReplicaState, cap: LoopState, now: float
    ) -> tuple[Outcome, Need | None, ReplicaState]:
        """The outcome, what the formula found if it was computed, and the state with this evaluation."""
        current = state.target
        silence = hold_without_numbers(signals, current)
        if silence is not None and (signals.ready > 0 or (signals.held == 0 and current > 0)):
            return silence, None, state
        if loop.idle_seconds is not None and is_idle(loop, signals, state, now):
            return Outcome(0, Reason.SCALE_TO_ZERO_IDLE, f"no request for {loop.idle_seconds:.0f} s"), None, state
        if current == 0 and signals.held == 0:
            return Outcome(0, Reason.SCALE_TO_ZERO_IDLE, "no request waits"), None, state
        need = replicas_needed(self.policy, signals, models, state, now, self.tuning)
        wanted, reason, explanation = _apply_tolerance(loop, signals, need, current)
        # The cap may let a replica run more than it sustains.
        sustained = replica_capacity(self.policy, models.replica).sequences
        filled = min(math.ceil(signals.running / sustained), signals.ready)
        state = record_evaluation(loop, state, Evaluation(now, wanted, filled), self.tuning)
        if wanted > current:
            found = self._scale_up(loop, signals, state, now, wanted, reason, explanation)
        elif wanted < current:
            found = self._scale_down(loop, signals, models, state, now, wanted, explanation)
        else:
            planned = f"{explanation}, target {need.utilization:.0%}"
            found = Outcome(current, Reason.WITHIN_TOLERANCE, planned)
        return found, need, state

    def _scale_up(
        self,
        loop: ReplicaPolicy,
        signals: Signals,
        state: ReplicaState,
        now: float,
        wanted: int,
        reason: Reason,
        explanation: str,
    ) -> Outcome:
        current = state.target
        limited: list[Reason] = []
        target = wanted
        if target > loop.highest:
            target = loop.highest
            limited.append(loop.highest_reason)
        if target <= current:
            message = f"{explanation}; {current} replicas are the most allowed"
            return Outcome(current, limited[0], message, tuple(limited), recommended=wanted)
        up, window = loop.scale_up, loop.scale_up.stabilization_window_seconds
        steady = min(wanted_within(state, now, window, self.tuning), default=current)
        if reason is not Reason.ACTIVATED_BY_REQUEST and (now - state.since < window or steady <= current):
            more = seconds_until_steady(state, now, window, +1, self.tuning)
            message = f"{explanation}; held for another {more:.0f} s, as it is to last {window} s"
            return Outcome(current, Reason.STABILIZING, message, (*limited, Reason.STABILIZING), recommended=wanted)
        allowed = steps_left(state, now, up.period_seconds, up.max_percent, up.max_pods, +1)
        if reason is not Reason.ACTIVATED_BY_REQUEST and steady < target:
            target = steady
            limited.append(Reason.STABILIZING)
        if target > current + allowed:
            target = current + allowed
            limited.append(Reason.STEP_LIMITED)
        if target <= current:
            waits = Reason.PENDING_REPLICAS if signals.pending else Reason.STEP_LIMITED
            more = seconds_until_step(state, now, up.period_seconds, +1)
            message = (
                f"{explanation}; held for another {more:.0f} s, as many as allowed were added in {up.period_seconds} s"
            )
            return Outcome(current, waits, message, tuple(limited), recommended=wanted)
        return Outcome(target, reason, explanation, tuple(limited), recommended=wanted)

    def _scale_down(
        self,
        loop: ReplicaPolicy,
        signals: Signals,
        models: Models,
        state: ReplicaState,
        now: float,
        wanted: int,
        explanation: str,
    ) -> Outcome:
        current, tuning = state.target, self.tuning

        def hold_replicas(reason: Reason, message: str) -> Outcome:
            return Outcome(current, reason, f"{explanation}; {message}", (reason,), recommended=wanted)

        if loop.lowest >= current:
            return hold_replicas(Reason.MIN_REPLICAS, f"{current} replicas are the fewest allowed")
        if signals.pending and signals.queued + signals.refused > 0:
            unserved = "none waits, is held or was refused"
            return hold_replicas(Reason.PENDING_REPLICAS, f"{signals.pending} pending are held until {unserved}")
        window = down_window(loop, signals, tuning)
        if signals.pending:
            # Nothing is called back that may be wanted again before it would have served.
            window = max(window, startup_seconds(signals, tuning))
        steady = max(wanted_within(state, now, window, tuning), default=current)
        if now - state.since < window or steady >= current:
            more = seconds_until_steady(state, now, window, -1, tuning)
            return hold_replicas(Reason.STABILIZING, f"held for another {more:.0f} s, as it is to last {window:.0f} s")
        seconds = filled_window(loop, signals, tuning)
        filled = 0 if seconds is None else filled_within(state, seconds, tuning, models.lighter_since)
        if seconds is not None and filled >= current:
            more = seconds_until_unfilled(state, seconds, tuning)
            held = f"held for another {more:.0f} s, as {filled} were filled within {seconds:.0f} s"
            return hold_replicas(Reason.STABILIZING, held)
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
            more = seconds_until_step(state, now, down.period_seconds, -1)
            why = f"held for another {more:.0f} s, as many as allowed were removed in {down.period_seconds} s"
            if signals.pending:
                why = f"those that serve are held until the {signals.pending} pending serve"
            return Outcome(current, limited[-1], f"{explanation}; {why}", limited, recommended=wanted)
        return Outcome(target, Reason.DEMAND_BELOW_TARGET, explanation, limited, recommended=wanted)


def seconds_idle(signals: Signals, state: ReplicaState, now: float) -> float:
    """Since the fleet last had a request; since this memory began where there was none."""
    return now - (state.since if signals.last_request is None else signals.last_request)


def is_idle(loop: ReplicaPolicy, signals: Signals, state: ReplicaState, now: float) -> bool:
    """Whether the fleet has had no request for as long as ``idleSeconds``, and has none now."""
    return (
        loop.idle_seconds is not None
        and signals.demand == 0
        and signals.current
        and seconds_idle(signals, state, now) >= loop.idle_seconds
    )


def _move_into_bounds(loop: ReplicaPolicy, current: int, bounded: int) -> Outcome:
    if bounded > current:
        reason, bound = Reason.MIN_REPLICAS, "minReplicas"
    else:
        reason = loop.highest_reason
        bound = "budget.maxGPUs" if reason is Reason.GPU_BUDGET else "maxReplicas"
    return Outcome(bounded, reason, f"{bound} allows {bounded}", (reason,))


def _apply_tolerance(loop: ReplicaPolicy, signals: Signals, need: Need, current: int) -> tuple[int, Reason, str]:
    """The formula's number after tolerance."""
    if current == 0:
        return need.replicas, Reason.ACTIVATED_BY_REQUEST, f"{signals.held} requests are held for a replica"
    ratio = need.ratio_at(current)
    wanted = need.replicas
    if abs(ratio - need.utilization) <= loop.tolerance * need.utilization:
        wanted = current
    explanation = need.explain(signals, current)
    if wanted > current:
        return wanted, Reason.DEMAND_ABOVE_TARGET, f"{explanation} > {need.utilization:.0%}"
    if wanted < current:
        return wanted, Reason.DEMAND_BELOW_TARGET, f"{explanation} < {need.utilization:.0%}"
    return current, Reason.WITHIN_TOLERANCE, explanation


def _describe_inputs(signals: Signals, live_cap: int, need: Need | None) -> dict[str, str]:
    inputs = {
        "serving": str(signals.ready),
        "pending": str(signals.pending),
        "running": str(signals.running),
        "waiting": str(signals.waiting),
        "held": str(signals.held),
        "refused": f"{signals.refused} in {signals.window_seconds:.0f} s",
        "arrived": f"{signals.arrived} in {signals.window_seconds:.0f} s",
        "finished": f"{signals.finished} in {signals.window_seconds:.0f} s",
        "liveCap": f"{live_cap} sequences",
        "preemptionRate": f"{signals.preemption_rate:.1%} in {signals.window_seconds:.0f} s",
        "kvUsage": f"{signals.kv_usage:.0%}",
    }
    if signals.unreported:
        inputs["unreported"] = ", ".join(signals.unreported)
    if need is None:
        return inputs
    demand = f"{need.demand.steady:.1f} + {need.demand.backlog:.1f} for the queue"
    return {**inputs, "demand": f"{demand} sequences", "replicaCapacity": str(need.capacity)}
