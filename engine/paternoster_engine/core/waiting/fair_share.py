"""Fair shares of the engine for tenants."""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from paternoster_contract.queueing.service_counters import OUTPUT_TOKEN_COST, PROMPT_TOKEN_COST, ServiceCounters
from paternoster_engine.core.request import Request, RequestStatus


class FairShareQueue:
    """The tenant that was served least goes first, by :class:`ServiceCounters`.

    A tenant is served tokens of prompts as they are computed, or found in the cache, and each token sampled. Within a
    tenant, preempted requests lead and others are served in order of arrival.
    """

    preempts = True

    def __init__(self, weights: Mapping[str, float], *, by_due: bool = False) -> None:
        """``weights``: share of tenants whose requests bring none, relative to others; 1 for those not named.

        ``by_due``: a tenant's requests are served in order of :attr:`Request.due`, not arrival.
        """
        self._by_due = by_due
        self._weights = weights
        self._queues: dict[str, deque[Request]] = {}
        """Tenants that wait; none of the queues is empty."""
        self._num_waiting = 0
        self._running: Counter[str] = Counter()
        """Requests that run by tenant, none of them 0."""
        self.counters = ServiceCounters()

    @property
    def waiting(self) -> Sequence[Request]:
        # Other threads read this: copy() and tuple() copy without releasing the interpreter lock.
        queues = self._queues.copy()
        return [request for tenant in self._sort_tenants(queues) for request in tuple(queues[tenant])]

    def count_waiting(self, tenant: str | None = None) -> int:
        if tenant is None:
            return self._num_waiting
        return len(self._queues.get(tenant, ()))

    def count_tenants(self) -> int:
        return len(self._queues)

    def insert(self, request: Request) -> None:
        tenant = request.spec.tenant
        if tenant not in self._queues:
            self.counters.begin_waiting(tenant)
            self._queues[tenant] = deque()
        queue = self._queues[tenant]
        index = bisect_right(queue, request.due, key=_get_due) if self._by_due else len(queue)
        if request.status is RequestStatus.PREEMPTED:
            index = sum(r.status is RequestStatus.PREEMPTED and r.spec.arrival <= request.spec.arrival for r in queue)
        queue.insert(index, request)
        self._num_waiting += 1

    def remove(self, request: Request) -> None:
        queue = self._queues[request.spec.tenant]
        queue.remove(request)
        self._num_waiting -= 1
        if not queue:
            del self._queues[request.spec.tenant]
            self.counters.end_waiting(request.spec.tenant)

    def begin_running(self, request: Request) -> None:
        tenant = request.spec.tenant
        if tenant not in self._running:
            self.counters.begin_running(tenant)
        self._running[tenant] += 1

    def end_running(self, request: Request) -> None:
        tenant = request.spec.tenant
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
            self.counters.end_running(tenant)

    def iterate_candidates(self) -> Iterator[Request]:
        passed: dict[str, int] = {}
        while True:
            open_ = [tenant for tenant, queue in self._queues.items() if passed.get(tenant, 0) < len(queue)]
            if not open_:
                return
            tenant = min(reversed(open_), key=self.counters.__getitem__)
            request = self._queues[tenant][passed.get(tenant, 0)]
            yield request
            if request.status is not RequestStatus.RUNNING:
                passed[tenant] = passed.get(tenant, 0) + 1

    def first_of_each_tenant(self) -> Iterator[Request]:
        return (self._queues[tenant][0] for tenant in self._sort_tenants(self._queues))

    def may_preempt(self, request: Request, running: Request) -> bool:
        return False

    def prompt_precedence(self, request: Request) -> float:
        return 0.0

    def service_lead(self, request: Request, other: Request) -> float:
        return max(0.0, self.counters[request.spec.tenant] - self.counters[other.spec.tenant])

    def count_computed(self, request: Request, stop: int) -> None:
        stop = min(stop, request.num_prompt)
        # What is computed again after a preemption was charged the first time.
        if stop > request.num_charged:
            self._add_service(request, PROMPT_TOKEN_COST * (stop - request.num_charged))
            request.num_charged = stop

    def count_sampled(self, request: Request, num_tokens: int) -> None:
        self._add_service(request, OUTPUT_TOKEN_COST * num_tokens)

    def count_rejected(self, request: Request, num_tokens: int) -> None:
        self._add_service(request, PROMPT_TOKEN_COST * num_tokens)

    def _sort_tenants(self, tenants: Iterable[str]) -> list[str]:
        """Return ``tenants``, in order of their coming, with the least served first, and of equals the last to come.

        One that comes is lifted to the least counter, and has no request in the step under way.
        """
        ordered = list(tenants)[::-1]
        ordered.sort(key=self.counters.__getitem__)
        return ordered

    def _add_service(self, request: Request, cost: float) -> None:
        tenant, limits = request.spec.tenant, request.spec.limits
        weight = self._weights.get(tenant, 1.0) if limits is None else limits.weight
        self.counters.add(tenant, cost, weight)


def _get_due(request: Request) -> float:
    return request.due
