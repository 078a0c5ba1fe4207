"""The least counter of tenants that come and go, without a look at all of them."""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace

MIN_LIMIT = 64
"""Entries of the heap below which those that have gone stay in it."""


class LeastServed:
    """A set of tenants with the least of their counters: a heap of lower bounds.

    A counter that grows leaves its entry where it is, below it, until that entry is the first of the heap. So counting
    a token costs nothing here, and a tenant that comes or goes takes logarithmic time, on average over many.
    """

    def __init__(self, counters: Mapping[str, float]) -> None:
        """``counters``: by tenant; after one was made smaller, :meth:`lower_bound` must be called."""
        self._counters = counters
        self._bounds: dict[str, float] = {}
        """The entry of each tenant; all others in the heap are of tenants that have gone, or were replaced."""
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._bounds

    def __len__(self) -> int:
        return len(self._bounds)

    def add(self, tenant: str) -> None:
        """Add a tenant with a counter; one that is there already stays."""
        if tenant not in self._bounds:
            self._push_entry(tenant)

    def discard(self, tenant: str) -> None:
        """Remove a tenant; nothing happens where it is not there."""
        if self._bounds.pop(tenant, None) is not None and not self._bounds:
            self._heap.clear()

    def lower_bound(self, tenant: str) -> None:
        """The counter of ``tenant`` may be smaller than before."""
        if tenant in self._bounds and self._counters[tenant] < self._bounds[tenant]:
            self._push_entry(tenant)

    def find_least(self) -> float:
        """The least counter of those that are there: at least one."""
        heap, bounds = self._heap, self._bounds
        while True:
            bound, tenant = heap[0]
            if bounds.get(tenant) != bound:
                heappop(heap)
                continue
            counter = self._counters[tenant]
            if counter == bound:
                return bound
            bounds[tenant] = counter
            heapreplace(heap, (counter, tenant))

    def _push_entry(self, tenant: str) -> None:
        self._bounds[tenant] = counter = self._counters[tenant]
        if len(self._heap) >= max(MIN_LIMIT, 2 * len(self._bounds)):
            self._heap = [(bound, each) for each, bound in self._bounds.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (counter, tenant))
