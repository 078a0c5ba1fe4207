"""One step's work, made once by the scheduler and read by the runner."""

from dataclasses import dataclass, field
from typing import NamedTuple

from paternoster_engine.core.request import Request


class ScheduledRequest(NamedTuple):
    """Which tokens of a request go through the model in this step."""

    # A tuple and not a dataclass, because each step makes one a request.

    request: Request
    start: int
    """First token of the chunk, counted from the beginning of the prompt."""
    num_tokens: int
    samples: bool
    """True when the chunk reaches the last known token, so that the step samples the next one."""

    @property
    def stop(self) -> int:
        return self.start + self.num_tokens


BlockCopy = tuple[int, int]
"""Block copied from, block copied to."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one forward pass computes. Empty when there is nothing to run.

    ``swap_out`` is copied before ``swap_in``, that before ``copies``, and all before the pass: blocks given up in this
    step are written by it.
    """

    step: int
    scheduled: tuple[ScheduledRequest, ...] = ()
    preempted: tuple[Request, ...] = field(default=())
    """Requests that lost their blocks while this batch was made."""
    expired: tuple[Request, ...] = ()
    """Requests that ended, their deadlines past, before this batch was made."""
    swap_out: tuple[BlockCopy, ...] = ()
    """From the KV pool to host memory."""
    swap_in: tuple[BlockCopy, ...] = ()
    """From host memory to the KV pool."""
    copies: tuple[BlockCopy, ...] = ()
    """Within the KV pool, for sequences that go separate ways; no block is both read and written, or written twice."""

    @property
    def num_tokens(self) -> int:
        return sum(item.num_tokens for item in self.scheduled)

    def __bool__(self) -> bool:
        return bool(self.scheduled or self.swap_out or self.swap_in or self.copies)
