"""What every loop of the law is: a number that it moves, a period, its own state, and one evaluation."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

from paternoster_operator.autoscaling.decision import LoopDecision, Reason
from paternoster_operator.autoscaling.models import Models
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.signals import Signals


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """What a loop remembers between two evaluations; each loop adds what it needs. Times are the caller's clock."""

    target: int
    """What the loop wants from now on."""
    due: float = 0.0
    """When it is to be evaluated next."""
    changed: float | None = None
    """When it changed its target last; None for never."""

    def is_early(self, now: float, period: float) -> bool:
        """Whether it is not due; not for longer than a period, so that a clock set back does not stop the loop."""
        return self.due - period <= now < self.due

    def after_decision(self, decision: LoopDecision, now: float, period: float) -> Self:
        """The state once a decision was made: its target, where it is applied."""
        state = replace(self, due=now + period)
        changes = decision.applied and decision.target != self.target
        return replace(state, target=decision.target, changed=now) if changes else state


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a loop's target should be, and why."""

    target: int
    reason: Reason
    message: str
    limited_by: tuple[Reason, ...] = ()
    recommended: int | None = None
    """Before limits; None where none applied."""

    def decide(self, loop: str, moves: str, current: int, *, unit: str = "", **more: Any) -> LoopDecision:
        """The decision of ``loop``, which moves ``moves``, such as the live cap, from ``current``."""
        change = f"{moves} {current}->{self.target}{unit}: "
        message = self.message if self.target == current else change + self.message
        recommended = self.target if self.recommended is None else self.recommended
        return LoopDecision(loop, current, self.target, recommended, self.reason, message, self.limited_by, **more)


def hold_without_numbers(signals: Signals, current: int) -> Outcome | None:
    """What holds a loop while no replica is ready or one of them is silent; None while all report."""
    if signals.ready == 0:
        return Outcome(current, Reason.INSUFFICIENT_DATA, "no replica is ready")
    if not signals.fresh:
        return Outcome(current, Reason.METRICS_STALE, f"held until numbers come from {', '.join(signals.stale_pods)}")
    return None


def hold_after(event: str, then: float | None, seconds: float, current: int, now: float) -> Outcome | None:
    """What holds a loop for ``seconds`` after an event, such as ``changed``; None once they have passed."""
    if then is None or not is_recent(now, then, seconds):
        return None
    since, more = now - then, then + seconds - now
    return Outcome(current, Reason.STABILIZING, f"{event} {since:.0f} s ago, held for another {more:.0f} s")


AnyState = TypeVar("AnyState", bound=LoopState)


class LoopStates(dict[str, LoopState]):
    """The state of every loop by its name, in the order of evaluation."""

    def find(self, kind: type[AnyState]) -> AnyState:
        """The state of that kind. Raises ``StopIteration`` where no loop has one."""
        return next(state for state in self.values() if isinstance(state, kind))

    @property
    def targets(self) -> dict[str, int]:
        return {name: state.target for name, state in self.items()}


class ControlLoop(Protocol):
    """Moves one number of a fleet. Loops are evaluated in order: a later one reads what an earlier one just decided."""

    @property
    def name(self) -> str:
        """Name in decisions, events and metrics: ``LiveCap``."""
        ...

    @property
    def period(self) -> float:
        """Seconds between two evaluations."""
        ...

    def adopt_running(self, observation: Observation, signals: Signals, state: Any) -> LoopState:
        """The state with what runs now; ``state`` is this loop's own, None before the first evaluation."""
        ...

    def evaluate(
        self, signals: Signals, models: Models, states: LoopStates, now: float
    ) -> tuple[LoopDecision | None, LoopState]:
        """The decision, None while the loop is off or not due, and the loop's new state."""
        ...


def is_recent(now: float, then: float | None, seconds: float) -> bool:
    """Whether less than ``seconds`` have passed since ``then``; not where the clock was set back to before it."""
    return then is not None and 0 <= now - then < seconds
