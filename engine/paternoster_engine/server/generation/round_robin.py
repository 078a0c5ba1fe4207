"""Work of several tenants in turn, so that no tenant's waits for all of another's."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class TenantQueues(Generic[T]):
    """Queues of work, one for each tenant. Pure."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()

    def count_waiting(self, tenant: str) -> int:
        """Return how much work of a tenant waits."""
        return len(self._queues.get(tenant, ()))

    def has_work(self, tenant: str, work: T) -> bool:
        return work in self._queues.get(tenant, ())

    def add(self, tenant: str, work: T) -> None:
        """Behind all that the tenant has waiting; a new tenant comes behind the others."""
        self._queues.setdefault(tenant, deque()).append(work)

    def remove(self, tenant: str, work: T) -> None:
        """Remove work that waits; has no effect where the tenant has no such work waiting."""
        queue = self._queues.get(tenant)
        if queue is None or work not in queue:
            return
        queue.remove(work)
        if not queue:
            del self._queues[tenant]

    def pop_next(self) -> T | None:
        """The first work of the tenant whose turn it is, who comes last then; None where nothing waits."""
        if not self._queues:
            return None
        tenant, queue = self._queues.popitem(last=False)
        work = queue.popleft()
        if queue:
            self._queues[tenant] = queue
        return work
