"""In which order requests wait, and until when."""

from abc import ABC, abstractmethod
from bisect import insort_right
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import Protocol

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.waiting.fair_share import FairShare

Rank = tuple[float, float]


class WaitingQueue(Protocol):
    """Requests without blocks."""

    preempts: bool
    """A waiting request may preempt running ones: those that it :meth:`outranks`, or of tenants that hold more."""

    @property
    def waiting(self) -> Sequence[Request]:
        """Next to be admitted first."""
        ...

    def count_waiting(self, tenant: str | None = None) -> int:
        """Number of waiting requests, or of those of ``tenant``."""
        ...

    def count_tenants(self) -> int:
        """Number of tenants with a waiting request."""
        ...

    def insert(self, request: Request) -> None:
        """Queue a request that is new or was preempted."""
        ...

    def remove(self, request: Request) -> None: ...

    def candidates(self) -> Iterator[Request]:
        """In order of admission; those removed meanwhile were admitted, the others are passed over."""
        ...

    def heads(self) -> Iterator[Request]:
        """Of each tenant the first to be admitted, or of all where tenants do not matter."""
        ...

    def outranks(self, request: Request, running: Request) -> bool:
        """Whether ``request`` may preempt ``running``."""
        ...

    def precedence(self, request: Request) -> float:
        """Whose prompt is served first, whatever its length: the lowest."""
        ...

    def lead(self, request: Request, other: Request) -> float:
        """Tokens that the request's tenant was served beyond that of ``other``, where that counts; never below 0."""
        ...

    def computed(self, request: Request, stop: int) -> None:
        """The first ``stop`` tokens of ``request`` are computed, or found in the cache."""
        ...

    def sampled(self, request: Request) -> None:
        """``request`` was given a token."""
        ...

    def wasted(self, request: Request, num_tokens: int) -> None:
        """So many tokens were computed for ``request`` that were proposed and proved wrong."""
        ...


class RankedQueue(ABC):
    """A queue in order of a rank that does not change while a request waits; of equals the first to come."""

    preempts = False

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self._waiting_of: dict[str, int] = {}
        """Number of waiting requests by tenant, none of them 0."""

    def count_waiting(self, tenant: str | None = None) -> int:
        return len(self.waiting) if tenant is None else self._waiting_of.get(tenant, 0)

    def count_tenants(self) -> int:
        return len(self._waiting_of)

    @abstractmethod
    def rank(self, request: Request) -> Rank:
        """Lowest first."""

    def insert(self, request: Request) -> None:
        queue, rank = self.waiting, self.rank
        if not queue or rank(queue[-1]) <= rank(request):
            queue.append(request)
        else:
            insort_right(queue, request, key=rank)
        self._waiting_of[request.tenant] = self._waiting_of.get(request.tenant, 0) + 1

    def remove(self, request: Request) -> None:
        self.waiting.remove(request)
        left = self._waiting_of[request.tenant] - 1
        if left:
            self._waiting_of[request.tenant] = left
        else:
            del self._waiting_of[request.tenant]

    def candidates(self) -> Iterator[Request]:
        queue, index = self.waiting, 0
        while index < len(queue):
            request = queue[index]
            yield request
            if index < len(queue) and queue[index] is request:
                index += 1

    def heads(self) -> Iterator[Request]:
        return islice(self.candidates(), 1)

    def outranks(self, request: Request, running: Request) -> bool:
        return False

    def precedence(self, request: Request) -> float:
        return 0.0

    def lead(self, request: Request, other: Request) -> float:
        return 0.0

    def computed(self, request: Request, stop: int) -> None:  # noqa: B027
        pass

    def sampled(self, request: Request) -> None:  # noqa: B027
        pass

    def wasted(self, request: Request, num_tokens: int) -> None:  # noqa: B027
        pass


class FirstCome(RankedQueue):
    """First come, first served; preempted requests lead, in order of arrival."""

    def rank(self, request: Request) -> Rank:
        return (0, request.arrival) if request.status is RequestStatus.PREEMPTED else (1, 0)


class FirstDue(RankedQueue):
    """In order of :attr:`Request.due`, for prompts that are computed whole: short ones do not wait for long calls."""

    def rank(self, request: Request) -> Rank:
        return request.due, 0


class Interleaved(FirstCome):
    """As :class:`FirstCome`, but preempted and fresh requests take turns.

    For preemption by swap: coming back is cheap then, and a crowd of those that do must not shut out everybody else
    (as in Hugging Face's continuous batching).
    """

    def __init__(self) -> None:
        super().__init__()
        self._preempted_next = True

    def candidates(self) -> Iterator[Request]:
        passed: set[Request] = set()
        while (request := self._next(passed)) is not None:
            preempted = request.status is RequestStatus.PREEMPTED
            yield request
            if request.status is RequestStatus.RUNNING:
                self._preempted_next = not preempted
            else:
                passed.add(request)

    def _next(self, passed: set[Request]) -> Request | None:
        """The first of the kind whose turn it is, or of the other kind if there is none."""
        first: Request | None = None
        for request in self.waiting:
            if request in passed:
                continue
            # Preempted ones lead the queue.
            if self._preempted_next or request.status is not RequestStatus.PREEMPTED:
                return request
            first = first or request
        return first


class PriorityClasses(RankedQueue):
    """Lower ``priority`` first, as in vLLM; a class may preempt running requests of a class below it.

    With aging, each ``aging`` seconds of waiting are worth one class, so that nobody starves. Waiting moves a request
    forward in the queue and never makes it preempt anybody; what a request preempts is strictly below it in class and
    would queue behind it, so two requests can never take turns in preempting each other.
    """

    preempts = True

    def __init__(self, aging: float, *, by_due: bool = False) -> None:
        """``aging``: seconds, 0 for never. ``by_due``: within a class :attr:`Request.due` counts, not arrival."""
        super().__init__()
        self._aging = aging
        self._by_due = by_due

    def rank(self, request: Request) -> Rank:
        if self._aging == 0:
            return request.priority, request.due if self._by_due else request.arrival
        # All age at the same pace: who is ahead of whom does not change with time.
        return request.arrival + request.priority * self._aging, request.priority

    def precedence(self, request: Request) -> float:
        return request.priority

    def outranks(self, request: Request, running: Request) -> bool:
        return request.priority < running.priority and self.rank(request) < self.rank(running)


def make_queue(config: SchedulerConfig, running: Sequence[Request]) -> WaitingQueue:
    """``running``: the scheduler's own list."""
    match config.order:
        case "fcfs" if config.whole_prompts:
            return FirstDue()
        case "fcfs":
            return FirstCome() if config.preemption == "recompute" else Interleaved()
        case "priority":
            return PriorityClasses(config.priority_aging, by_due=config.whole_prompts)
        case "fair-share":
            return FairShare(config.tenant_weights, running, by_due=config.whole_prompts)


MIN_LIMIT = 1024
"""Watched requests above which those that have ended are forgotten."""


class Deadlines:
    """Requests with a deadline, the earliest first. One that decodes when its deadline passes goes on."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._order = count()
        self._limit = MIN_LIMIT

    def watch(self, request: Request) -> None:
        """Call for each request that joins the queue, and again when it comes back to it."""
        if request.deadline is None:
            return
        if len(self._heap) >= self._limit:
            # Those that ended in time must not be kept until their deadline.
            self._heap = [entry for entry in self._heap if not entry[2].finished]
            heapify(self._heap)
            self._limit = max(MIN_LIMIT, 2 * len(self._heap))
        heappush(self._heap, (request.deadline, next(self._order), request))

    def expired(self, now: float) -> Iterator[Request]:
        """Requests whose deadline is past and whose next step would be one of prefill."""
        while self._heap and self._heap[0][0] <= now:
            _, _, request = heappop(self._heap)
            prefilling = any(sequence.prefilling for sequence in request.sequences)
            if not request.finished and (request.status is not RequestStatus.RUNNING or prefilling):
                yield request
