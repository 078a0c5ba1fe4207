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
from paternoster_engine.core.waiting.fair_share import FairShareQueue

Rank = tuple[float, float]


class WaitingQueue(Protocol):
    """Requests without blocks."""

    preempts: bool
    """A waiting request may preempt running ones: those that it :meth:`may_preempt`, or of tenants that hold more."""

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

    def begin_running(self, request: Request) -> None:
        """``request``, which was removed, is admitted."""
        ...

    def end_running(self, request: Request) -> None:
        """``request`` has ended, or is preempted and not inserted yet."""
        ...

    def iterate_candidates(self) -> Iterator[Request]:
        """Yield requests in order of admission; those removed meanwhile were admitted, the others are passed over."""
        ...

    def first_of_each_tenant(self) -> Iterator[Request]:
        """Yield the first request of each tenant, or of all where tenants do not matter."""
        ...

    def may_preempt(self, request: Request, running: Request) -> bool:
        """Whether ``request`` may preempt ``running``."""
        ...

    def prompt_precedence(self, request: Request) -> float:
        """Rank of a prompt before its length counts; the lowest is served first."""
        ...

    def service_lead(self, request: Request, other: Request) -> float:
        """Return how many tokens more the request's tenant was served than that of ``other``, where it counts."""
        ...

    def count_computed(self, request: Request, stop: int) -> None:
        """Count the first ``stop`` tokens of ``request`` as computed or found in the cache."""
        ...

    def count_sampled(self, request: Request, num_tokens: int) -> None:
        """Count ``num_tokens`` sampled tokens of ``request``."""
        ...

    def count_rejected(self, request: Request, num_tokens: int) -> None:
        """Count ``num_tokens`` proposed tokens of ``request`` that were computed and rejected."""
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
    def rank_request(self, request: Request) -> Rank:
        """Lowest first."""

    def insert(self, request: Request) -> None:
        queue, rank = self.waiting, self.rank_request
        if not queue or rank(queue[-1]) <= rank(request):
            queue.append(request)
        else:
            insort_right(queue, request, key=rank)
        self._waiting_of[request.spec.tenant] = self._waiting_of.get(request.spec.tenant, 0) + 1

    def remove(self, request: Request) -> None:
        self.waiting.remove(request)
        left = self._waiting_of[request.spec.tenant] - 1
        if left:
            self._waiting_of[request.spec.tenant] = left
        else:
            del self._waiting_of[request.spec.tenant]

    def begin_running(self, request: Request) -> None:  # noqa: B027
        pass

    def end_running(self, request: Request) -> None:  # noqa: B027
        pass

    def iterate_candidates(self) -> Iterator[Request]:
        queue, index = self.waiting, 0
        while index < len(queue):
            request = queue[index]
            yield request
            if index < len(queue) and queue[index] is request:
                index += 1

    def first_of_each_tenant(self) -> Iterator[Request]:
        return islice(self.iterate_candidates(), 1)

    def may_preempt(self, request: Request, running: Request) -> bool:
        return False

    def prompt_precedence(self, request: Request) -> float:
        return 0.0

    def service_lead(self, request: Request, other: Request) -> float:
        return 0.0

    def count_computed(self, request: Request, stop: int) -> None:  # noqa: B027
        pass

    def count_sampled(self, request: Request, num_tokens: int) -> None:  # noqa: B027
        pass

    def count_rejected(self, request: Request, num_tokens: int) -> None:  # noqa: B027
        pass


class FcfsQueue(RankedQueue):
    """First come, first served; preempted requests lead, in order of arrival."""

    def rank_request(self, request: Request) -> Rank:
        return (0, request.spec.arrival) if request.status is RequestStatus.PREEMPTED else (1, 0)


class DueTimeQueue(RankedQueue):
    """In order of :attr:`Request.due`, for prompts that are computed whole: short ones do not wait for long calls."""

    def rank_request(self, request: Request) -> Rank:
        return request.due, 0


class InterleavedQueue(FcfsQueue):
    """First-come, first-served queue in which preempted and fresh requests alternate.

    For preemption by swap: resuming is cheap then, and many resumed requests must not delay all fresh ones
    (as in Hugging Face's continuous batching).
    """

    def __init__(self) -> None:
        super().__init__()
        self._preempted_next = True

    def iterate_candidates(self) -> Iterator[Request]:
        passed: set[Request] = set()
        while (request := self._find_next(passed)) is not None:
            preempted = request.status is RequestStatus.PREEMPTED
            yield request
            if request.status is RequestStatus.RUNNING:
                self._preempted_next = not preempted
            else:
                passed.add(request)

    def _find_next(self, passed: set[Request]) -> Request | None:
        """Return the first request of the kind that is next, or of the other kind if there is none."""
        first: Request | None = None
        for request in self.waiting:
            if request in passed:
                continue
            # Preempted ones lead the queue.
            if self._preempted_next or request.status is not RequestStatus.PREEMPTED:
                return request
            first = first or request
        return first


class PriorityQueue(RankedQueue):
    """Lower ``priority`` first, as in vLLM; a class may preempt running requests of a class below it.

    With aging, each ``aging`` seconds of waiting are worth one class, so that no request starves. Waiting moves a
    request forward in the queue and never lets it preempt another; what a request preempts is strictly below it in
    class and would queue behind it, so two requests never preempt each other in turn.
    """

    preempts = True

    def __init__(self, aging: float, *, by_due: bool = False) -> None:
        """``aging``: seconds, 0 for never. ``by_due``: within a class :attr:`Request.due` counts, not arrival."""
        super().__init__()
        self._aging = aging
        self._by_due = by_due

    def rank_request(self, request: Request) -> Rank:
        if self._aging == 0:
            return request.spec.priority, request.due if self._by_due else request.spec.arrival
        # All age at the same pace: their order does not change with time.
        return request.spec.arrival + request.spec.priority * self._aging, request.spec.priority

    def prompt_precedence(self, request: Request) -> float:
        return request.spec.priority

    def may_preempt(self, request: Request, running: Request) -> bool:
        return request.spec.priority < running.spec.priority and self.rank_request(request) < self.rank_request(running)


def make_queue(config: SchedulerConfig) -> WaitingQueue:
    """The queue in the order of ``config``."""
    match config.order:
        case "fcfs" if config.whole_prompts:
            return DueTimeQueue()
        case "fcfs":
            return FcfsQueue() if config.preemption == "recompute" else InterleavedQueue()
        case "priority":
            return PriorityQueue(config.priority_aging, by_due=config.whole_prompts)
        case "fair-share":
            return FairShareQueue(config.tenant_weights, by_due=config.whole_prompts)


MIN_LIMIT = 1024
"""Watched requests above which those that have ended are forgotten."""


class Deadlines:
    """Requests with a deadline, the earliest first. A request that decodes when its deadline passes continues."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._order = count()
        self._limit = MIN_LIMIT

    def watch(self, request: Request) -> None:
        """Add a request that joins the queue, or joins it again."""
        if request.spec.deadline is None:
            return
        if len(self._heap) >= self._limit:
            # Requests that ended in time need not stay until their deadline.
            self._heap = [entry for entry in self._heap if not entry[2].finished]
            heapify(self._heap)
            self._limit = max(MIN_LIMIT, 2 * len(self._heap))
        heappush(self._heap, (request.spec.deadline, next(self._order), request))

    def pop_expired(self, now: float) -> Iterator[Request]:
        """Remove and yield requests whose deadline is past and whose next step would be prefill."""
        while self._heap and self._heap[0][0] <= now:
            _, _, request = heappop(self._heap)
            prefilling = any(sequence.prefilling for sequence in request.sequences)
            if not request.finished and (request.status is not RequestStatus.RUNNING or prefilling):
                yield request
