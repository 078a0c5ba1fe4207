"""Slots and KV blocks shared out by tenant: one that holds more than others makes way for one that holds less."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

from paternoster_engine.core.request import Request
from paternoster_engine.core.waiting.waiting_queue import WaitingQueue

FEWER = 2
"""Times as much as a tenant that runs something another one holds that makes way for it."""


class TenantShares:
    """Max-min fairness by weight over what running requests hold.

    A tenant alone may hold everything. Nobody keeps room for others: a request that waits gets what a tenant with more
    gives up for it, if that one was served no less and still holds as much afterwards; or :data:`FEWER` times as much,
    where the request is not the only one of its tenant that runs. So two tenants never take turns in that, and those
    that hold about as much wait for requests to end.
    """

    def __init__(self, weights: Mapping[str, float], queue: WaitingQueue) -> None:
        """``weights``: of tenants whose requests bring none; 1 for those not named."""
        self._weights = weights
        self._queue = queue

    def largest(self, running: Sequence[Request], request: Request) -> Sequence[Request]:
        """Requests of the tenant that holds the most KV blocks; of equals the one that ``request`` is of."""
        held: defaultdict[str, float] = defaultdict(float)
        for other in running:
            held[other.tenant] += len(other.block_ids) / self._weight(other)
        most = max(held, key=lambda tenant: (held[tenant], tenant == request.tenant))
        return [other for other in running if other.tenant == most]

    def due_a_slot(self, requests: Iterable[Request], running: Sequence[Request]) -> Iterator[Request]:
        """Those of ``requests`` with which their tenants hold less than another one, counted in slots over weight."""
        held: defaultdict[str, float] = defaultdict(float)
        for other in running:
            held[other.tenant] += other.slots / self._weight(other)
        largest = nlargest(2, held.items(), key=lambda item: item[1])
        for request in requests:
            wanted = _wanted(held.get(request.tenant, 0.0), request.slots / self._weight(request))
            if any(slots > wanted for tenant, slots in largest if tenant != request.tenant):
                yield request

    def victims_for(
        self,
        request: Request,
        new: int,
        running: Sequence[Request],
        eligible: Sequence[Request],
        missing: int,
        fits: Callable[[Collection[Request]], bool],
    ) -> list[Request]:
        """Whom of ``eligible`` to preempt so that ``request`` can run: the least computed of who holds the most first.

        Empty where that takes more than other tenants have to give up. ``new``: blocks that it would take; ``missing``:
        slots that others must leave for it; ``fits``: whether memory is enough once these have left.
        """
        # Of a group its first sequence, which stands for all.
        own = [other for other in running if other.leader is other and other.tenant == request.tenant]
        left = [other for other in eligible if other.leader is other and other.tenant != request.tenant]
        left = [other for other in left if self._queue.lead(request, other) == 0]
        weight, victims = self._weight(request), list[Request]()
        slots = _wanted(sum(map(_slots, own)), request.slots) / weight
        blocks = _wanted(sum(map(_blocks, own)), new) / weight
        while missing > sum(map(_slots, victims)) or not fits(victims):
            short_of_slots = missing > sum(map(_slots, victims))
            size, wanted = (_slots, slots) if short_of_slots else (_blocks, blocks)
            victim = self._victim(left, size, wanted, spares_groups=bool(own) or not short_of_slots)
            if victim is None:
                return []
            victims.append(victim)
            left.remove(victim)
        return victims

    def _victim(
        self, running: Sequence[Request], size: Callable[[Request], int], wanted: float, *, spares_groups: bool
    ) -> Request | None:
        """One whose tenant holds ``wanted`` without it, and the most of all before.

        A group that is all that its tenant runs leaves nothing. It makes way for a tenant that runs nothing, as the
        sequences that it has go on later from where they were.
        """
        held: defaultdict[str, float] = defaultdict(float)
        for other in running:
            held[other.tenant] += size(other) / self._weight(other)

        def gives_up(other: Request) -> bool:
            rest = held[other.tenant] - size(other) / self._weight(other)
            return rest >= wanted or (other.width > 1 and not spares_groups and held[other.tenant] > wanted)

        victims = [other for other in running if gives_up(other)]
        return min(victims, key=lambda r: (-held[r.tenant], r.num_computed, -r.arrival), default=None)

    def _weight(self, request: Request) -> float:
        return self._weights.get(request.tenant, 1.0) if request.limits is None else request.limits.weight


def _wanted(held: float, more: float) -> float:
    """What another tenant must be left with for one that holds ``held`` to get ``more``."""
    return FEWER * (held + more) if held else more


def _slots(request: Request) -> int:
    return max(request.slots, len(request.sequences))


def _blocks(request: Request) -> int:
    return sum(len(sequence.block_ids) for sequence in request.sequences)
