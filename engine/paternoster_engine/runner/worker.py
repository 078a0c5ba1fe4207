"""A thread of its own for the forward pass, so that the engine's thread can plan and serve meanwhile."""

import queue
import threading
from concurrent.futures import Future

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.runner.protocol import Runner, Step


class Worker:
    """Computes another runner's steps in order, each while the engine goes on.

    A step begins when all its tokens are known: the thread that knows them is a moment away on a CPU, and every
    feature of the runner underneath holds as it is.
    """

    def __init__(self, runner: Runner) -> None:
        """``runner``: one whose steps are computed when their result is asked for."""
        self._runner = runner
        self._steps: queue.SimpleQueue[tuple[Step, Future[StepResult]] | None] = queue.SimpleQueue()
        # A daemon, as a step that hangs must not keep the process from ending.
        threading.Thread(target=self._run, name="forward", daemon=True).start()

    @property
    def fault(self) -> str | None:
        return self._runner.fault

    def submit(self, batch: Batch) -> Future[StepResult]:
        step = self._runner.submit(batch), Future[StepResult]()
        self._steps.put(step)
        return step[1]

    def chains(self, batch: Batch) -> bool:
        return False

    def close(self) -> None:
        """End the thread once the steps submitted are computed."""
        self._steps.put(None)

    def _run(self) -> None:
        while (submitted := self._steps.get()) is not None:
            step, future = submitted
            try:
                future.set_result(step.result())
            except Exception as error:
                future.set_exception(error)
