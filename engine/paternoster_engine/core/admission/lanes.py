"""Lanes: each has a queue, running requests and counters of its own, and what the lanes above it leave.

A lane decides as if those below it were not there: the blocks that their requests hold count as free for it. Where it
needs them, requests of the lowest lane are preempted, the least computed first. What a lane has is all that is counted
for it, so that no number of the first one has anything of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paternoster_contract.access.identity import Lane
from paternoster_engine.core.admission.prompt_shares import PromptShares
from paternoster_engine.core.admission.reservation import Slots
from paternoster_engine.core.admission.validation import RequestValidation
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.stats import Counters
from paternoster_engine.core.waiting.waiting_queue import WaitingQueue


@dataclass(frozen=True, slots=True, eq=False)
class RequestLane:
    """The requests of one lane."""

    lane: Lane
    queue: WaitingQueue
    slots: Slots
    shares: PromptShares
    validation: RequestValidation
    running: list[Request]
    """Sequences that hold blocks, in order of admission."""
    counters: Counters = field(default_factory=Counters)

    @property
    def has_work(self) -> bool:
        return bool(self.running) or self.queue.count_waiting() > 0


def make_lane(
    lane: Lane, config: SchedulerConfig, queue: WaitingQueue, live_cap: int | None, above: Sequence[RequestLane] = ()
) -> RequestLane:
    """A lane without requests, below those of ``above``."""
    running: list[Request] = []
    slots = Slots(config, running, live_cap, [each.slots for each in above])
    return RequestLane(lane, queue, slots, PromptShares(queue), RequestValidation(config, queue), running)
