"""The tokens of a step, so that the prompts in it do not keep those who decode waiting for too long."""

from dataclasses import dataclass

from paternoster_contract.stats import Unreported
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates, Outcome, hold_after
from paternoster_operator.autoscaling.decision import TOKEN_BUDGET, LoopDecision, Reason
from paternoster_operator.autoscaling.loops.engine_limit import EngineLimitLoop, LimitBounds
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.signals import Signals

_P95_DEVIATIONS = 1.645
"""Standard deviations between the mean and the 95th percentile of a normal distribution."""


@dataclass(frozen=True, slots=True)
class TokenBudgetLoop(EngineLimitLoop):
    """Moves the token budget of every engine."""

    name: str = TOKEN_BUDGET
    moves: str = "token budget"
    unit: str = " tokens"

    def adopt_running(self, observation: Observation, signals: Signals, state: LoopState | None) -> LoopState:
        return LoopState(target=signals.token_budget) if state is None else state

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, LoopState]:
        settings, capacity = self.policy.concurrency, signals.token_capacity
        lowest = settings.token_budget.min or max(self.tuning.min_token_budget, settings.min)
        bounds = LimitBounds(self.policy.budget_mode, min(lowest, capacity), capacity, capacity)
        return self.steer_within(bounds, signals, models, states[self.name], now)

    def describe_bounds(self, bounds: LimitBounds, bounded: int) -> str:
        if bounded == bounds.highest:
            return f"engines have at most {bounded} tokens a step"
        if self.policy.concurrency.token_budget.min is not None:
            return f"the manifest allows no less than {bounded} tokens"
        return f"the loop goes no lower than {bounded} tokens"

    def find_target(
        self, signals: Signals, models: Models, state: LoopState, bounds: LimitBounds, now: float
    ) -> Outcome:
        itl, capacity, current, steps = self.policy.itl_seconds, bounds.highest, state.target, models.replica.steps
        if itl is None:
            return Outcome(capacity, Reason.AT_CAPACITY, "no limit between tokens")
        if Unreported.STEPS in signals.unreported:
            return Outcome(current, Reason.NOT_REPORTED, "held, as the engines do not report their steps")
        cooldown = self.tuning.replica_period_seconds
        if (held := hold_after("changed", state.changed, cooldown, current, now)) is not None:
            return held
        # What is between the limit and what is aimed at is for steps that take longer than others with as much in them.
        margin = self.tuning.itl_margin
        limit = min(itl * margin, itl / (1 + _P95_DEVIATIONS * steps.spread))
        fits, step_seconds = steps.largest_step(limit), steps.mixed_step(current)
        if fits is None or step_seconds is None:
            return Outcome(current, Reason.INSUFFICIENT_DATA, "the time of a step is not known yet")
        grain = self.tuning.budget_grain
        room = capacity if fits >= capacity else max(int(fits) // grain * grain, bounds.lowest)
        duration = f"a step of {current} tokens takes {step_seconds * 1000:.0f} ms"
        # A change by less than that margin would follow the noise of the fit, in many small moves.
        if room * margin > current or current < room == capacity:
            return Outcome(room, Reason.HEADROOM_AVAILABLE, f"{duration} < {limit * 1000:.0f} ms")
        if room >= current * margin:
            return Outcome(current, Reason.WITHIN_TOLERANCE, f"{duration}, aimed at {limit * 1000:.0f} ms")
        return Outcome(room, Reason.LATENCY_ABOVE_TARGET, f"{duration} > {limit * 1000:.0f} ms")

    def describe_inputs(self, signals: Signals, models: Models) -> dict[str, str]:
        describe, steps = signals.describe_number, models.replica.steps
        return {
            "capacity": f"{signals.token_capacity} tokens",
            "fit": describe(f"{steps.fit:.0%}", Unreported.STEPS),
            "spread": describe(f"{steps.spread:.0%}", Unreported.STEPS),
            "serving": str(signals.ready),
            "waiting": describe(str(signals.waiting)),
        }
