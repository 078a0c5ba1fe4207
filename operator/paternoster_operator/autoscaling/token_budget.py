"""The third loop: the tokens of a step, so that the prompts in it do not keep those who decode waiting for too long."""

from dataclasses import replace

from paternoster_operator.api.v1alpha1 import ConcurrencyMode
from paternoster_operator.autoscaling.decision import LawState, LoopDecision, Reason, is_early, is_recent
from paternoster_operator.autoscaling.policy import BudgetPolicy, ScalingPolicy
from paternoster_operator.autoscaling.replica_model import ITL_MARGIN
from paternoster_operator.autoscaling.signals import Signals

PERIOD_SECONDS = 5.0
"""As the cap's: both act on the next step and restart nothing."""
GRAIN = 32
"""Budgets are multiples of this many tokens, or the capacity."""
TOLERANCE = 0.1
"""Share of the budget that is left alone: a little more or less than the limit allows is noise."""


def decide_budget(
    policy: ScalingPolicy, signals: Signals, state: LawState, now: float
) -> tuple[LoopDecision | None, LawState]:
    """The budget loop's word, or None when it is off or not due, or where an engine has no such budget."""
    loop, capacity = policy.budget, signals.token_capacity
    if capacity == 0:
        return None, state
    if loop.mode is ConcurrencyMode.FIXED:
        return None, replace(state, token_budget=capacity)
    current = min(state.token_budget or capacity, capacity)
    if is_early(now, state.budget_due, PERIOD_SECONDS):
        return None, state
    target, reason, message = _judge(policy, signals, state, current, now)
    applied = loop.mode is ConcurrencyMode.AUTO
    decision = LoopDecision(
        loop="TokenBudget",
        current=current,
        target=target,
        recommended=target,
        reason=reason,
        message=f"token_budget {current}->{target}: {message}" if target != current else message,
        limited_by=(Reason.AT_FLOOR,) if target < current and target == loop.lowest(capacity) else (),
        inputs={"capacity": str(capacity), "fit": f"{state.model.steps.fit:.0%}", "waiting": str(signals.waiting)},
        applied=applied,
    )
    changed = now if target != current and applied else state.budget_changed
    state = replace(state, budget_due=now + PERIOD_SECONDS, budget_changed=changed)
    return decision, replace(state, token_budget=target if applied else capacity)


Verdict = tuple[int, Reason, str]


def _judge(policy: ScalingPolicy, signals: Signals, state: LawState, current: int, now: float) -> Verdict:
    loop, capacity = policy.budget, signals.token_capacity
    if not signals.fresh:
        return current, Reason.METRICS_STALE, f"no recent numbers from {', '.join(signals.stale_pods)}"
    if policy.slo is None or policy.slo.itl is None:
        return capacity, Reason.AT_CAPACITY, "no limit between tokens"
    if is_recent(now, state.budget_changed, policy.cap.cooldown_seconds):
        assert state.budget_changed is not None
        return current, Reason.STABILIZING, f"changed {now - state.budget_changed:.0f} s ago"
    # What is between the limit and what is aimed at is for steps with more beside the prompt than usual.
    limit = policy.slo.itl * ITL_MARGIN
    fits, taken = state.model.steps.largest_step(limit), state.model.steps.mixed_step(current)
    if fits is None or taken is None:
        return current, Reason.INSUFFICIENT_DATA, "what a step takes is not known yet"
    room = _within(loop, capacity, fits)
    said = f"a step of {current} tokens takes {taken * 1000:.0f} ms"
    if room > current * (1 + TOLERANCE):
        return room, Reason.HEADROOM_AVAILABLE, f"{said} < {limit * 1000:.0f} ms"
    if room >= current * (1 - TOLERANCE):
        return current, Reason.WITHIN_TOLERANCE, f"{said}, aimed at {limit * 1000:.0f} ms"
    return room, Reason.LATENCY_ABOVE_TARGET, f"{said} > {limit * 1000:.0f} ms"


def _within(loop: BudgetPolicy, capacity: int, tokens: float) -> int:
    """Tokens as a budget that may be."""
    if tokens >= capacity:
        return capacity
    return max(int(tokens) // GRAIN * GRAIN, loop.lowest(capacity))
