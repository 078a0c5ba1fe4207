"""A batch in the making."""

import math
from dataclasses import dataclass, field

from paternoster_engine.core.batch import Batch, BlockCopy, ScheduledRequest
from paternoster_engine.core.counters import Counters
from paternoster_engine.core.request import Request


@dataclass(slots=True)
class StepPlan:
    """The step's token budget and who got how much of it."""

    budget: int
    chunks: dict[Request, int] = field(default_factory=dict)
    preempted: list[Request] = field(default_factory=list)
    expired: list[Request] = field(default_factory=list)
    lowest_class: float = math.inf
    """Highest ``priority`` that the step computes anything of."""

    def lets(self, request: Request) -> bool:
        return request.priority <= self.lowest_class

    def give(self, request: Request) -> None:
        """As many of the request's uncomputed tokens as the budget has left; none to a class that is paused."""
        count = min(request.num_uncomputed, self.budget) if self.lets(request) else 0
        if count > 0:
            self.chunks[request] = count
            self.budget -= count

    def take_back(self, request: Request) -> None:
        self.budget += self.chunks.pop(request, 0)

    def seal(
        self,
        step: int,
        swaps: tuple[tuple[BlockCopy, ...], tuple[BlockCopy, ...]],
        copies: tuple[BlockCopy, ...],
        counters: Counters,
        *,
        ahead: bool,
    ) -> Batch:
        """Count the step's tokens as computed: a later step may be planned before this one has run.

        ``swaps``: copies out of the KV pool and into it. ``copies``: those within it. ``ahead``: the next step is
        planned before this one has ended.
        """
        scheduled = []
        computed = recomputed = 0
        for request, count in self.chunks.items():
            start = request.num_computed
            stop = start + count
            # Lengths instead of properties, here and in the scheduler: this is done for each request in each step.
            known = len(request.prompt) + len(request.output) + request.num_pending
            # As ScheduledRequest(...) does it, without the call in between that takes twice as long.
            scheduled.append(tuple.__new__(ScheduledRequest, (request, start, count, stop == known)))
            computed += count
            before = request.max_computed
            if start < before:
                recomputed += min(stop, before) - start
            if stop > before:
                request.max_computed = stop
            request.num_computed = stop
            if ahead and stop == known:
                request.num_pending += 1
        counters.computed_tokens += computed
        counters.recomputed_tokens += recomputed
        return Batch(step, tuple(scheduled), tuple(self.preempted), tuple(self.expired), *swaps, copies)
