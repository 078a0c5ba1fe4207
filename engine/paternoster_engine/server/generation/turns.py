"""Who is served next of those who wait: each in turn, so that nobody's work waits for all of another's."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Queues of work, one for each tenant. Pure."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()

    def waiting(self, tenant: str) -> int:
        """How much a tenant has waiting."""
        return len(self._queues.get(tenant, ()))

    def has(self, tenant: str, work: T) -> bool:
        return work in self._queues.get(tenant, ())

    def add(self, tenant: str, work: T) -> None:
        """Behind all that the tenant has waiting; a new tenant comes behind the others."""
        self._queues.setdefault(tenant, deque()).append(work)

    def remove(self, tenant: str, work: T) -> None:
        """Of no effect where the tenant has no such work waiting."""
        queue = self._queues.get(tenant)
        if queue is None or work not in queue:
            return
        queue.remove(work)
        if not queue:
            del self._queues[tenant]

    def take(self) -> T | None:
        """The first of the tenant whose turn it is, who comes behind the others then; None where nobody waits."""
        if not self._queues:
            return None
        tenant, queue = self._queues.popitem(last=False)
        work = queue.popleft()
        if queue:
            self._queues[tenant] = queue
        return work
