"""What the loops of live cap and token budget have in common: they move a limit of every engine within bounds.

A limit acts on the next step and restarts nothing, so it is looked at every five seconds.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from paternoster_operator.api.v1alpha1 import ConcurrencyMode
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates, Outcome, hold_without_numbers
from paternoster_operator.autoscaling.decision import LoopDecision, Reason
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import Tuning


@dataclass(frozen=True, slots=True)
class LimitBounds:
    """Where a limit may be."""

    mode: ConcurrencyMode
    lowest: int
    highest: int
    """0 where the engines have no such limit."""
    unsteered: int | None
    """What the engines have while the loop is off or only advises; None for what they have now."""


@dataclass(frozen=True, slots=True)
class EngineLimitLoop(ABC):
    """Moves one limit of every engine."""

    policy: ScalingPolicy
    tuning: Tuning
    name: str = ""
    moves: str = ""
    """The limit, as messages name it: ``live cap``."""
    unit: str = ""

    @abstractmethod
    def adopt_running(self, observation: Observation, signals: Signals, state: LoopState | None) -> LoopState:
        """At first with the limit that the engines have, or had when a status was last written."""

    @abstractmethod
    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, LoopState]:
        """The decision of :meth:`steer_within` what the manifest and the engines allow."""

    @abstractmethod
    def find_target(
        self, signals: Signals, models: Models, state: LoopState, bounds: LimitBounds, now: float
    ) -> Outcome:
        """Where the limit should be; ``state`` has it within its bounds, and all replicas report."""

    @abstractmethod
    def describe_inputs(self, signals: Signals, models: Models) -> dict[str, str]:
        """The numbers behind a decision, with their units."""

    def describe_bounds(self, bounds: LimitBounds, bounded: int) -> str:
        """What moved the limit to ``bounded``, the nearest that ``bounds`` allow."""
        return f"the manifest allows {bounds.lowest} to {bounds.highest}"

    def record_signals(self, signals: Signals, models: Models, state: LoopState, now: float) -> LoopState:
        """The state with what the engines did since, at the limit that they have."""
        return state

    @property
    def period(self) -> float:
        return self.tuning.engine_period_seconds

    def steer_within(
        self, bounds: LimitBounds, signals: Signals, models: Models, state: LoopState, now: float
    ) -> tuple[LoopDecision | None, LoopState]:
        """The decision, None while the loop is off or not due, or where the engines have no such limit."""
        if bounds.highest == 0:
            return None, state
        applied = bounds.mode is ConcurrencyMode.AUTO
        if not applied and bounds.unsteered is not None:
            state = replace(state, target=bounds.unsteered)
        if bounds.mode is ConcurrencyMode.FIXED:
            return None, state
        state = replace(state, target=state.target or bounds.highest)
        bounded = min(max(state.target, bounds.lowest), bounds.highest)
        if bounded == state.target and state.is_early(now, self.period):
            return None, state
        state, inputs = self.record_signals(signals, models, state, now), self.describe_inputs(signals, models)
        found = hold_without_numbers(signals, bounded)
        if found is None:
            found = self.find_target(signals, models, replace(state, target=bounded), bounds, now)
        if found.target == bounded != state.target:
            found = replace(found, reason=Reason.BOUNDS_CHANGED, message=self.describe_bounds(bounds, bounded))
        if found.target == bounds.lowest < state.target:
            found = replace(found, limited_by=(Reason.AT_FLOOR,))
        decision = found.decide(self.name, self.moves, state.target, unit=self.unit, inputs=inputs, applied=applied)
        return decision, state.after_decision(decision, now, self.period)
