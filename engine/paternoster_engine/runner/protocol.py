"""What the engine asks of whatever computes its batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Protocol

from paternoster_engine.core.batch import Batch, StepResult


class RunnerStep(Protocol):
    """A step under way."""

    def result(self) -> StepResult:
        """Wait for what came of it; raises what went wrong."""
        ...


class Runner(Protocol):
    """Computes steps one after another, in the order in which they were submitted."""

    @property
    def fault(self) -> str | None:
        """Why no step can be computed any more; None while steps can."""
        ...

    def submit(self, batch: Batch) -> RunnerStep:
        """Begin a step. Block tables are read now, for they may change while it is under way."""
        ...

    def supports_async_scheduling(self, batch: Batch) -> bool:
        """Whether ``batch`` may be submitted while the step before it still samples tokens that it begins with.

        Items with such a token start beyond what their requests know; the runner fills the token in.
        """
        ...


class DeferredStep:
    """A step that is computed by the call of :meth:`result`, in the thread that makes it."""

    def __init__(self, compute: Callable[[], StepResult]) -> None:
        self._compute = compute

    def result(self) -> StepResult:
        return self._compute()


class SynchronousRunner(ABC):
    """A :class:`Runner` whose step is one call."""

    fault: str | None = None

    @abstractmethod
    def execute(self, batch: Batch) -> StepResult:
        """Compute ``batch``; raises what went wrong."""

    def submit(self, batch: Batch) -> DeferredStep:
        return DeferredStep(partial(self.execute, batch))

    def supports_async_scheduling(self, batch: Batch) -> bool:
        return False
