"""Drives admission: at every step, or whole batches at a time, as servers did before Orca."""

from typing import Protocol

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.waiting.waiting_queue import WaitingQueue


class Batching(Protocol):
    """Decides before each step whether it may admit requests."""

    whole_batches: bool
    """A batch is chosen at once, however many steps its prompts take."""

    def admits(self, num_running: int, queue: WaitingQueue, now: float) -> bool: ...


class Continuous:
    """At every step (Orca's iteration-level scheduling)."""

    whole_batches = False

    def admits(self, num_running: int, queue: WaitingQueue, now: float) -> bool:
        return True


class Static:
    """A batch of the waiting requests, as soon as the one before has drained."""

    whole_batches = True

    def admits(self, num_running: int, queue: WaitingQueue, now: float) -> bool:
        return num_running == 0


class Dynamic:
    """As :class:`Static`, but a batch starts when ``size`` requests wait or the oldest has waited ``wait`` seconds.

    Model servers that batch whole requests do this.
    """

    whole_batches = True

    def __init__(self, size: int, wait: float) -> None:
        self._size = size
        self._wait = wait

    def admits(self, num_running: int, queue: WaitingQueue, now: float) -> bool:
        waiting = queue.waiting if num_running == 0 else ()
        if not waiting:
            return False
        return len(waiting) >= self._size or now - min(r.spec.arrival for r in waiting) >= self._wait


def make_batching(config: SchedulerConfig) -> Batching:
    match config.mode:
        case "continuous":
            return Continuous()
        case "static":
            return Static()
        case "dynamic":
            return Dynamic(config.batch_size or config.max_num_seqs, config.batch_wait)
