"""The outer loop: replicas, from demand over capacity.

The shape is that of the Kubernetes HorizontalPodAutoscaler (tolerance, stabilization windows, step limits); what
differs is the metric, sequences wanted over sequences sustained.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paternoster_contract.stats import Unreported
from paternoster_operator.api.v1alpha1 import AutoscalingMode
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates, Outcome, hold_without_numbers
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, LoopDecision, Reason
from paternoster_operator.autoscaling.loops.demand import Need, replicas_needed
from paternoster_operator.autoscaling.loops.limits import (
    Evaluation,
    ReplicaBound,
    ReplicaState,
    bounds_downwards,
    bounds_upwards,
    record_evaluation,
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
        replicas = self.policy.start_replicas if observation.replicas is None else observation.replicas
        if state is None:
            return ReplicaState(target=replicas, since=observation.now)
        if state.target == replicas:
            return state
        # What was decided was not done, so no replica is on its way for it.
        return replace(state, target=replicas, changes=())

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, ReplicaState]:
        """The decision, None while the loop is off or not due."""
        loop, state, cap = self.policy.replicas, states[self.name], states[LIVE_CAP]
        assert isinstance(state, ReplicaState)
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
            utilization=None if need is None else need.ratio_at(current),
            formula="" if need is None else need.formula,
            otherwise="" if found.recommended in (None, found.target) else f"{found.recommended} replicas",
        )
        difference = found.target - current
        if difference and decision.applied:
            state = replace(state, changes=(*state.changes, (now, difference)))
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
        need = replicas_needed(self.policy, signals, models, self.tuning)
        wanted, reason, explanation = _apply_tolerance(loop, signals, need, current)
        # The cap may let a replica run more than it sustains.
        sustained = replica_capacity(self.policy, models.replica).sequences
        filled = min(math.ceil(signals.running / sustained), signals.ready)
        state = record_evaluation(loop, state, Evaluation(now, wanted, filled), self.tuning)
        if wanted == current:
            planned = f"{explanation}, target {need.utilization:.0%}"
            return Outcome(current, Reason.WITHIN_TOLERANCE, planned), need, state
        if wanted > current:
            bounds = bounds_upwards(loop, state, now, self.tuning)
        else:
            bounds = bounds_downwards(loop, signals, state, now, self.tuning, models.lighter_since)
        return _move_within(bounds, current, wanted, reason, explanation), need, state


def _move_within(
    bounds: Sequence[ReplicaBound], current: int, wanted: int, reason: Reason, explanation: str
) -> Outcome:
    """Move as near to ``wanted`` as all bounds allow, and never away from it; what holds the rest is named."""
    sign = 1 if wanted > current else -1
    nearest = min(sign * wanted, *(sign * bound.replicas for bound in bounds))
    target = sign * max(nearest, sign * current)
    holding = [bound for bound in bounds if sign * bound.replicas <= sign * target != sign * wanted]
    if not holding:
        return Outcome(target, reason, explanation, recommended=wanted)
    limited = tuple(dict.fromkeys(bound.reason for bound in holding))
    # Of those with one reason, the one that ends last.
    first = max(holding, key=lambda bound: (bound.reason is limited[0], bound.seconds))
    if target == current:
        return Outcome(current, first.reason, f"{explanation}; {first.message}", limited, recommended=wanted)
    return Outcome(target, reason, f"{explanation}; {wanted} wanted, {first.message}", limited, recommended=wanted)


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
    if abs(ratio - need.utilization) <= loop.settings.tolerance_percent / 100 * need.utilization:
        wanted = current
    explanation = need.explain(signals, current)
    if wanted > current:
        return wanted, Reason.DEMAND_ABOVE_TARGET, f"{explanation} > {need.utilization:.0%}"
    if wanted < current:
        return wanted, Reason.DEMAND_BELOW_TARGET, f"{explanation} < {need.utilization:.0%}"
    return current, Reason.WITHIN_TOLERANCE, explanation


def _describe_inputs(signals: Signals, live_cap: int, need: Need | None) -> dict[str, str]:
    describe, lately = signals.describe_number, f"in {signals.window_seconds:.0f} s"
    inputs = {
        "serving": str(signals.ready),
        "pending": str(signals.pending),
        "running": describe(str(signals.running)),
        "waiting": describe(str(signals.waiting)),
        "held": str(signals.held),
        "refused": describe(f"{signals.refused} {lately}", Unreported.REQUESTS),
        "arrived": describe(f"{signals.arrived} {lately}"),
        "finished": describe(f"{signals.finished} {lately}", Unreported.REQUESTS),
        "liveCap": f"{live_cap} sequences",
        "preemptionRate": describe(f"{signals.preemption_rate:.1%} {lately}", Unreported.PREEMPTIONS),
        "kvUsage": describe(f"{signals.kv_usage:.0%}", Unreported.KV_BLOCKS),
    }
    if signals.unreported:
        inputs["unreported"] = ", ".join(signals.unreported)
    if need is None:
        return inputs
    return {**inputs, "demand": f"{need.demand:.1f} sequences", "replicaCapacity": str(need.capacity)}
