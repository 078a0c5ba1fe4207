"""One step's work, made once by the scheduler and read by the runner."""

from dataclasses import dataclass, field

from paternoster_engine.core.request import Request


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """Which tokens of a request go through the model in this step."""

    request: Request
    start: int
    """First token of the chunk, counted from the beginning of the prompt."""
    num_tokens: int
    samples: bool
    """True when the chunk reaches the last known token, so that the step samples the next one."""

    @property
    def stop(self) -> int:
        return self.start + self.num_tokens


@dataclass(frozen=True, slots=True)
class Batch:
    """What one forward pass computes. Empty when there is nothing to run."""

    step: int
    scheduled: tuple[ScheduledRequest, ...] = ()
    preempted: tuple[Request, ...] = field(default=())
    """Requests that lost their blocks while this batch was made."""

    @property
    def num_tokens(self) -> int:
        return sum(item.num_tokens for item in self.scheduled)

    def __bool__(self) -> bool:
        return bool(self.scheduled)
