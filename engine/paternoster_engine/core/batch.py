"""One step: its token budget, the batch that the runner computes, and the result."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from paternoster_contract.access.identity import Lane
from paternoster_engine.core.request import Continuations, FinishReason, Request, TokenLogprobs


class ScheduledRequest(NamedTuple):
    """Which tokens of a request go through the model in this step."""

    # A tuple and not a dataclass, because each step makes one a request.

    request: Request
    start: int
    """First token of the chunk, counted from the beginning of the prompt."""
    num_tokens: int
    samples: bool
    """True when the chunk reaches the last known token, so that the step samples the next one, or gives the vector."""
    proposed: Sequence[int] = ()
    """The last tokens of the chunk, where they are not known: the step samples after each of them, too."""

    @property
    def stop(self) -> int:
        return self.start + self.num_tokens

    @property
    def known_stop(self) -> int:
        """Without what is proposed."""
        return self.start + self.num_tokens - len(self.proposed)

    @property
    def tokens(self) -> list[int]:
        """All of the chunk's."""
        known_tokens = self.request.slice_tokens(self.start, self.known_stop)
        return [*known_tokens, *self.proposed] if self.proposed else known_tokens


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


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of a batch. Nothing of it is in the requests before :meth:`Scheduler.update`."""

    tokens: Sequence[int | None] = ()
    """Sampled token of each scheduled item, None where it does not sample or its request is stuck or corrupted."""
    further: Mapping[Request, Sequence[int | None]] = field(default_factory=dict)
    """For items that propose tokens: what was sampled after each of them, as if it and those before it were right."""
    logprobs: Mapping[Request, Sequence[TokenLogprobs]] = field(default_factory=dict)
    """Log probabilities of each sampled token, for requests that ask."""
    prompt_logprobs: Mapping[Request, Sequence[TokenLogprobs]] = field(default_factory=dict)
    """For requests that ask: of the prompt tokens that the step computed."""
    continuations: Mapping[Request, Continuations] = field(default_factory=dict)
    """For sequences that fork: as many most likely next tokens as their branch selector needs."""

    vectors: Mapping[Request, Sequence[float]] = field(default_factory=dict)
    """For requests for no tokens whose prompt's end was computed."""
    corrupted: Collection[Request] = ()
    """Sequences for which the model gave NaN, or infinite logits or vectors, so that they have no result."""

    def store_results(self) -> None:
        """Add logprobs and other results besides tokens to the requests of this step that have not ended since."""
        for request, of_prompt in self.prompt_logprobs.items():
            if not request.leader.finished:
                request.prompt_logprobs += of_prompt
        for request, continuations in self.continuations.items():
            request.continuations = continuations
        for request, vector in self.vectors.items():
            if not request.finished:
                request.vector = vector

    def accepted_tokens(self, item: ScheduledRequest, token: int) -> list[int]:
        """The new tokens of ``item``, for which ``token`` was sampled first.

        More follow as long as each proposed token equals the sampled one.
        """
        tokens = [token]
        for proposed, following in zip(item.proposed, self.further.get(item.request, ()), strict=False):
            if proposed != tokens[-1] or following is None:
                break
            tokens.append(following)
        return tokens


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Result of a step for a request: a token, its end, or both; no token when it failed, branched or wants none."""

    request: Request
    token: int | None
    finish_reason: FinishReason | None


@dataclass(slots=True)
class BatchBuilder:
    """Builds a batch: the step's token budget, and how much of it each request got."""

    budget: int
    """Tokens left."""
    whole: bool = False
    """A request gets all of its tokens, or none."""
    chunks: dict[Request, int] = field(default_factory=dict)
    proposed: dict[Request, Sequence[int]] = field(default_factory=dict)
    """Tokens that chunks end with beyond what is known; they are none of ``chunks``."""
    preempted: list[Request] = field(default_factory=list)
    expired: list[Request] = field(default_factory=list)
    admitted: bool = False
    """Whether the step has admitted a request."""
    passing: set[Request] | None = None
    """Waiting requests that are served before running prompts, which take up the budget; None while these do not."""
    backlog: int = 0
    """Tokens of running prompts that this step leaves."""
    lowest_class: float = math.inf
    """Highest ``priority`` that the step computes anything of."""
    computed: int = 0
    """Tokens of the built batch."""
    recomputed: int = 0
    """Number of those that had been computed before a preemption took them."""

    def serves_class(self, request: Request) -> bool:
        return request.spec.priority <= self.lowest_class

    def has_preempted(self, lane: Lane) -> bool:
        """Whether the step has preempted a request of this lane."""
        return any(request.spec.lane is lane for request in self.preempted)

    def begin_lane(self, budget: int) -> None:
        """Go on with the requests of the next lane, with ``budget`` tokens."""
        self.budget, self.admitted, self.passing, self.backlog = budget, False, None, 0

    def count_tokens(self, first: int) -> tuple[int, int]:
        """Tokens of chunk number ``first`` and those after it, and how many of them had been computed before."""
        computed = recomputed = 0
        for request, count in islice(self.chunks.items(), first, None):
            start = request.num_computed
            computed += count + len(self.proposed.get(request, ()))
            recomputed += max(0, min(start + count, request.max_computed) - start)
        return computed, recomputed

    def has_room(self, request: Request) -> bool:
        """Whether the step can begin the request. One that is whole, and longer than any budget, has a step alone."""
        if not self.whole:
            return self.budget > 0
        return request.num_uncomputed <= self.budget or not self.chunks

    def add(self, request: Request) -> int:
        """Add uncomputed tokens of the request, as many as the budget has left; returns how many.

        None to a class that is paused, nor to a request that was only admitted so that others could pass.
        """
        count = request.num_uncomputed if self.whole else min(request.num_uncomputed, self.budget)
        waits = self.passing is not None and request not in self.passing
        if count <= 0 or waits or not self.serves_class(request):
            return 0
        self.chunks[request] = count
        self.budget = max(0, self.budget - count)
        return count

    def add_proposal(self, request: Request, tokens: Sequence[int]) -> None:
        """Append proposed ``tokens`` to the request's chunk, which reaches its last known token."""
        self.proposed[request] = tokens
        self.budget -= len(tokens)

    def remove(self, request: Request) -> None:
        self.budget += self.chunks.pop(request, 0)

    def build(
        self,
        step: int,
        swaps: tuple[tuple[BlockCopy, ...], tuple[BlockCopy, ...]],
        copies: tuple[BlockCopy, ...],
        *,
        ahead: bool,
    ) -> Batch:
        """Count the step's known tokens as computed: a later step may be planned before this one has run.

        ``swaps``: copies out of the KV pool and into it. ``copies``: those within it. ``ahead``: the next step is
        planned before this one has ended.
        """
        scheduled = []
        computed = recomputed = 0
        for request, count in self.chunks.items():
            start = request.num_computed
            stop = start + count
            # Lengths instead of properties, here and in the scheduler: this is done for each request in each step.
            known_tokens = request.num_prompt + len(request.output) + request.num_pending
            # As ScheduledRequest(...) does it, without the call in between that takes twice as long.
            proposed = self.proposed.get(request, ())
            size = count + len(proposed)
            scheduled.append(tuple.__new__(ScheduledRequest, (request, start, size, stop == known_tokens, proposed)))
            computed += size
            before = request.max_computed
            if start < before:
                recomputed += min(stop, before) - start
            if stop > before:
                request.max_computed = stop
            request.num_computed = stop
            if ahead and stop == known_tokens:
                request.num_pending += 1
        self.computed, self.recomputed = computed, recomputed
        return Batch(step, tuple(scheduled), tuple(self.preempted), tuple(self.expired), *swaps, copies)
