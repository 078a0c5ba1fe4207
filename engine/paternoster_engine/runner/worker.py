"""A thread of its own for the forward pass, so that the engine's thread can plan and serve meanwhile."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, cast

from paternoster_engine.core.batch import Batch
from paternoster_engine.engine import Runner, Tokens


class PreparingRunner(Runner, Protocol):
    """A runner whose step comes apart into what reads block tables and what computes."""

    def prepare(self, batch: Batch) -> Callable[[], Tokens]:
        """Read block tables now; the call computes the step."""
        ...


class Worker:
    """Computes steps in order, each while the engine goes on (:class:`AsyncRunner`).

    A step begins when all its tokens are known: the thread that knows them is a moment away on a CPU, and every
    feature of the runner underneath holds as it is.
    """

    def __init__(self, runner: Runner) -> None:
        """``runner``: a :class:`PreparingRunner`."""
        self._runner = cast(PreparingRunner, runner)
        self._steps: queue.SimpleQueue[tuple[Callable[[], Tokens], Future[Tokens]] | None] = queue.SimpleQueue()
        # A daemon, as a step that hangs must not keep the process from ending.
        threading.Thread(target=self._run, name="forward", daemon=True).start()

    @property
    def fault(self) -> str | None:
        """That of the runner underneath."""
        return getattr(self._runner, "fault", None)

    def execute(self, batch: Batch) -> Tokens:
        """Sampled token of each scheduled item, None where the item does not sample."""
        return self.submit(batch).result()

    def submit(self, batch: Batch) -> Future[Tokens]:
        """Begin a step after those submitted before."""
        step = self._runner.prepare(batch), Future[Tokens]()
        self._steps.put(step)
        return step[1]

    def chains(self, batch: Batch) -> bool:
        return False

    def close(self) -> None:
        """End the thread once the steps submitted are computed."""
        self._steps.put(None)

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            compute, future = step
            try:
                future.set_result(compute())
            except Exception as error:
                future.set_exception(error)
