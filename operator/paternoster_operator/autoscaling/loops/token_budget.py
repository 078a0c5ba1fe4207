"""The third loop: the tokens of a step, so that the prompts in it do not keep those who decode waiting for too long."""

from dataclasses import dataclass, replace

from paternoster_operator.api.v1alpha1 import ConcurrencyMode
from paternoster_operator.autoscaling.control_loop import (
    LoopState,
    LoopStates,
    Outcome,
    hold_after,
    hold_without_numbers,
)
from paternoster_operator.autoscaling.decision import TOKEN_BUDGET, LoopDecision, Reason
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudgetState(LoopState):
    """What the loop remembers; the target is 0 while no engine has a token budget."""


@dataclass(frozen=True, slots=True)
class TokenBudgetLoop:
    """Moves the token budget of every engine."""

    policy: ScalingPolicy
    tuning: Tuning
    name: str = TOKEN_BUDGET

    @property
    def period(self) -> float:
        return self.tuning.engine_period_seconds

    def adopt(self, observation: Observation, signals: Signals, state: TokenBudgetState | None) -> TokenBudgetState:
        """At first what the engines have."""
        return TokenBudgetState(target=signals.token_budget) if state is None else state

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, TokenBudgetState]:
        """The decision, None while the loop is off or not due, or where an engine has no such budget."""
        loop, capacity, state = self.policy.budget, signals.token_capacity, states.find(TokenBudgetState)
        if capacity == 0:
            return None, state
        if loop.mode is ConcurrencyMode.FIXED:
            return None, replace(state, target=capacity)
        if state.is_early(now, self.period):
            return None, state
        state = replace(state, target=min(state.target or capacity, capacity))
        current = state.target
        found = self._decide(signals, models, state, now)
        if found.target < current and found.target == loop.lowest(capacity):
            found = replace(found, limited_by=(Reason.AT_FLOOR,))
        decision = found.decide(
            self.name,
            "token budget",
            current,
            inputs={
                "capacity": f"{capacity} tokens",
                "fit": f"{models.replica.steps.fit:.0%}",
                "serving": str(signals.ready),
                "waiting": str(signals.waiting),
            },
            applied=loop.mode is ConcurrencyMode.AUTO,
        )
        state = state.after(decision, now, self.period)
        # What is only advised leaves the engines what they were started with.
        return decision, state if decision.applied else replace(state, target=capacity)

    def _decide(self, signals: Signals, models: Models, state: TokenBudgetState, now: float) -> Outcome:
        slo, capacity, current, steps = self.policy.slo, signals.token_capacity, state.target, models.replica.steps
        if (silence := hold_without_numbers(signals, current)) is not None:
            return silence
        if slo is None or slo.itl is None:
            return Outcome(capacity, Reason.AT_CAPACITY, "no limit between tokens")
        cooldown = self.policy.cap.cooldown_seconds
        if (held := hold_after("changed", state.changed, cooldown, current, now)) is not None:
            return held
        # What is between the limit and what is aimed at is for steps with more beside the prompt than usual.
        margin = self.tuning.itl_margin
        limit = slo.itl * margin
        fits, step_seconds = steps.largest_step(limit), steps.mixed_step(current)
        if fits is None or step_seconds is None:
            return Outcome(current, Reason.INSUFFICIENT_DATA, "the time of a step is not known yet")
        room = self._within(capacity, fits)
        duration = f"a step of {current} tokens takes {step_seconds * 1000:.0f} ms"
        # A change by less than that margin would follow the noise of the fit, in many small moves.
        if room * margin > current or current < room == capacity:
            return Outcome(room, Reason.HEADROOM_AVAILABLE, f"{duration} < {limit * 1000:.0f} ms")
        if room >= current * margin:
            return Outcome(current, Reason.WITHIN_TOLERANCE, f"{duration}, aimed at {limit * 1000:.0f} ms")
        return Outcome(room, Reason.LATENCY_ABOVE_TARGET, f"{duration} > {limit * 1000:.0f} ms")

    def _within(self, capacity: int, tokens: float) -> int:
        """The largest allowed budget of at most ``tokens``, and no less than the lowest."""
        if tokens >= capacity:
            return capacity
        grain = self.tuning.budget_grain
        return max(int(tokens) // grain * grain, self.policy.budget.lowest(capacity))
