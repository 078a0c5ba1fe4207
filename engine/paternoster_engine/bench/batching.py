"""Batches as servers formed them before Orca, to compare with: a whole batch runs before the next one begins."""

from collections.abc import Iterator
from typing import Literal, get_args

from paternoster_engine.core.batch import Batch
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.waiting.waiting_queue import FcfsQueue

ModeName = Literal["continuous", "dynamic", "static"]
"""``continuous`` admits at every step, the others a batch at a time; see :class:`BatchedScheduler`."""
MODES: tuple[ModeName, ...] = get_args(ModeName)
BATCH_WAIT_SECONDS = 0.05
"""Longest wait of a dynamic batch for its last request."""


class BatchQueue(FcfsQueue):
    """First come, first served, but only members of the batch may be admitted."""

    def __init__(self) -> None:
        super().__init__()
        self.members: tuple[Request, ...] = ()

    def iterate_candidates(self) -> Iterator[Request]:
        # Members lead the queue: they came first, and those that were preempted lead all others.
        for request in super().iterate_candidates():
            if request not in self.members:
                return
            yield request


class BatchedScheduler(Scheduler):
    """Forms a batch of the requests that wait, and the next one when all of it has ended.

    Static batches are formed at once. Dynamic ones wait until ``size`` requests are there or the oldest has waited
    ``wait`` seconds, as in model servers that batch whole requests.
    """

    def __init__(
        self, config: SchedulerConfig, live_cap: int | None = None, *, size: int = 1, wait: float = 0.0
    ) -> None:
        if config.order != "fcfs":
            raise ValueError(f"order is {config.order!r}: must be 'fcfs' where whole batches are admitted")
        self._size, self._wait = size, wait
        self._batch = BatchQueue()
        super().__init__(config, live_cap, queue=self._batch)

    def schedule(self, now: float) -> Batch:
        if all(request.finished for request in self._batch.members):
            self._batch.members = self._form_batch(now)
        return super().schedule(now)

    def _form_batch(self, now: float) -> tuple[Request, ...]:
        """The next batch; empty while it is put off."""
        waiting = tuple(self.waiting)
        if not waiting or (len(waiting) < self._size and now - waiting[0].spec.arrival < self._wait):
            return ()
        return waiting[: self.live_cap]


def make_scheduler(
    mode: ModeName, config: SchedulerConfig, live_cap: int | None = None, *, wait: float = BATCH_WAIT_SECONDS
) -> Scheduler:
    """A scheduler that admits as ``mode`` says; a dynamic batch waits ``wait`` seconds for all slots to be filled."""
    match mode:
        case "continuous":
            return Scheduler(config, live_cap)
        case "static":
            return BatchedScheduler(config, live_cap)
        case "dynamic":
            return BatchedScheduler(config, live_cap, size=config.max_num_seqs, wait=wait)
