"""The lift itself: schedule, run, update, once a step."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paternoster_engine.core.batch import Batch
from paternoster_engine.core.request import Request
from paternoster_engine.core.scheduler import Scheduler, StepOutput

log = logging.getLogger(__name__)


class Runner(Protocol):
    """What the engine needs of whatever computes a batch."""

    def execute(self, batch: Batch) -> Sequence[int | None]:
        """Sampled token of each scheduled item, None where it does not sample."""
        ...


@dataclass(slots=True)
class StageSeconds:
    """Time spent in each part of the steps so far."""

    schedule: float = 0.0
    forward: float = 0.0
    update: float = 0.0


class Engine:
    """One scheduler on one runner. Not thread-safe: one thread owns it."""

    def __init__(self, scheduler: Scheduler, runner: Runner, clock: Callable[[], float] = time.monotonic) -> None:
        self.scheduler = scheduler
        self.seconds = StageSeconds()
        self.runner = runner
        self._clock = clock

    def step(self) -> list[StepOutput]:
        """Run one batch; its new tokens, or nothing when there is nothing to run.

        Requests whose deadline has passed end without a token. When the runner raises, the batch's requests end with
        ``FinishReason.ERROR`` and the engine goes on.
        """
        started = self._clock()
        batch = self.scheduler.schedule(started)
        scheduled = self._clock()
        self.seconds.schedule += scheduled - started
        expired = _ended(batch.expired)
        if not batch:
            return expired
        try:
            sampled = self.runner.execute(batch)
        except Exception:
            log.exception("step %d failed; its %d requests end with an error", batch.step, len(batch.scheduled))
            return expired + _ended(self.scheduler.fail(batch))
        finally:
            executed = self._clock()
            self.seconds.forward += executed - scheduled
        outputs = self.scheduler.update(batch, sampled, executed)
        self.seconds.update += self._clock() - executed
        return expired + outputs


def _ended(requests: Sequence[Request]) -> list[StepOutput]:
    return [StepOutput(request, token=None, finish_reason=request.finish_reason) for request in requests]
