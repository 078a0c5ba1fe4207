"""The engine's loop: schedule, run, update, once a step."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paternoster_engine.core.batch import Batch, StepOutput, StepResult
from paternoster_engine.core.request import Request
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.step_work import StepWork
from paternoster_engine.runner.protocol import Runner, RunnerStep
from paternoster_engine.stall_limit import StallLimit
from paternoster_engine.step_pace import StepPace

if TYPE_CHECKING:  # a scheduler needs no torch
    from paternoster_engine.model.adapters.lora_adapter import OpenAdapter

log = logging.getLogger(__name__)

SHARED_STEP_SECONDS = 0.075
"""Length of a step while several tenants are served: what one may wait for another's prompt."""


@dataclass(slots=True)
class StageSeconds:
    """Time that the engine's thread spent in each part of the steps so far."""

    schedule: float = 0.0
    forward: float = 0.0
    update: float = 0.0


class Engine:
    """One scheduler on one runner. Not thread-safe: one thread owns it.

    With ``overlap`` in the scheduler's configuration each step is planned while the one before it runs. A call of
    :meth:`step` then gives the tokens of the step that the call before began.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        clock: Callable[[], float] = time.monotonic,
        open_adapter: "Callable[[Path, int], OpenAdapter] | None" = None,
    ) -> None:
        """``open_adapter``: of a path and the bytes that it may take; None where no request has an adapter."""
        self.scheduler = scheduler
        self.open_adapter = open_adapter
        self.seconds = StageSeconds()
        self.runner = runner
        self._clock = clock
        self._pace = StepPace()
        self.stall_limit = StallLimit()
        self._under_way: tuple[Batch, RunnerStep, float] | None = None
        """A step, and when it was begun."""
        self._ended = float("-inf")
        """When the last step had ended."""

    @property
    def fault(self) -> str | None:
        """Why no step can be computed any more; None while steps can."""
        return self.runner.fault

    def step(self) -> list[StepOutput]:
        """Run one batch; its new tokens, or nothing when there is nothing to run.

        Requests whose deadline has passed end without a token. When the runner raises, the batch's requests end with
        ``FinishReason.ERROR`` and the engine goes on.
        """
        if self.scheduler.config.overlap:
            return self._step_ahead()
        started = self._clock()
        batch = self._schedule()
        ended = _outputs_of_ended(batch.expired)
        if not batch:
            return ended
        return ended + self._collect(batch, started, lambda: self.runner.submit(batch).result())

    def _step_ahead(self) -> list[StepOutput]:
        """Plan a step and begin it; end the one before it as late as the runner and the requests allow."""
        before, self._under_way = self._under_way, None
        outputs: list[StepOutput] = []
        if before is not None and not self.scheduler.can_plan_ahead(before[0]):
            outputs += self._collect(before[0], before[2], before[1].result)
            before = None
        planned = self._schedule()
        outputs += _outputs_of_ended(planned.expired)
        if before is not None and not (planned and self.runner.supports_async_scheduling(planned)):
            outputs += self._collect(before[0], before[2], before[1].result, planned)
            planned, before = self.scheduler.without_finished(planned), None
        if planned:
            outputs += self._begin_batch(planned)
        if before is not None:
            outputs += self._collect(before[0], before[2], before[1].result, planned)
        return outputs

    def _begin_batch(self, batch: Batch) -> list[StepOutput]:
        """Requests that end because the batch cannot even begin."""
        self.stall_limit.begin_step(batch.num_tokens)
        started = self._clock()
        try:
            self._under_way = batch, self.runner.submit(batch), started
        except Exception:
            return self._fail_batch(batch)
        finally:
            self.seconds.forward += self._clock() - started
        return []

    def _schedule(self) -> Batch:
        started = self._clock()
        batch = self.scheduler.schedule(started)
        self.seconds.schedule += self._clock() - started
        return batch

    def _collect(
        self, batch: Batch, started: float, wait: Callable[[], StepResult], planned: Batch | None = None
    ) -> list[StepOutput]:
        """``started``: when work on it began. ``planned``: the step after ``batch``, if there is one already."""
        requested_at = self._clock()
        self.stall_limit.begin_step(batch.num_tokens)
        try:
            result = wait()
        except Exception:
            return self._fail_batch(batch, planned)
        finally:
            executed = self._clock()
            self.seconds.forward += executed - requested_at
        outputs = self.scheduler.update(batch, result, executed)
        for request in result.corrupted:
            log.error("request %s ends: the model gave NaN or infinite numbers for it", request.leader.request_id)
        ended = self._clock()
        self.seconds.update += ended - executed
        # A step that was begun ahead ran only from when the one before it had ended.
        work, seconds = StepWork.from_batch(batch), ended - max(started, self._ended)
        self.scheduler.add_step_work(batch, work, seconds)
        self.stall_limit.end_step(batch.num_tokens, seconds)
        self._pace.add(batch.num_tokens, work.prefill_tokens, seconds)
        self.scheduler.bound_shared_steps(self._pace.tokens_in(SHARED_STEP_SECONDS))
        self._ended = ended
        return outputs

    def _fail_batch(self, batch: Batch, planned: Batch | None = None) -> list[StepOutput]:
        log.exception("step %d failed; its %d requests end with an error", batch.step, len(batch.scheduled))
        return _outputs_of_ended(self.scheduler.fail_step(batch, planned))


def _outputs_of_ended(requests: Sequence[Request]) -> list[StepOutput]:
    return [StepOutput(request, token=None, finish_reason=request.finish_reason) for request in requests]
