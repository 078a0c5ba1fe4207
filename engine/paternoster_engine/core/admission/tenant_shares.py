"""Shares of slots and KV blocks by tenant: a tenant that holds less preempts one that holds more."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

from paternoster_engine.core.request import Request
from paternoster_engine.core.waiting.waiting_queue import WaitingQueue

MIN_HOLDING_RATIO = 2
"""A tenant that runs something preempts only tenants that hold this many times as much."""


class TenantShares:
    """Max-min fairness by weight over what running requests hold.

    A tenant alone may hold everything, and nothing is reserved for others. A waiting request preempts a tenant that
    holds more, if that tenant was served no less and still holds as much afterwards; or :data:`MIN_HOLDING_RATIO` times
    as much, where the request is not the only one of its tenant that runs. So two tenants never preempt each other in
    turn, and tenants that hold about as much wait for requests to end.
    """

    def __init__(self, weights: Mapping[str, float], queue: WaitingQueue) -> None:
        """``weights``: of tenants whose requests bring none; 1 for those not named."""
        self._weights = weights
        self._queue = queue

    def find_largest_tenant(self, running: Sequence[Request], request: Request) -> Sequence[Request]:
        """Requests of the tenant that holds the most KV blocks; of equals the one that ``request`` is of."""
        held: defaultdict[str, float] = defaultdict(float)
        for other in running:
            held[other.spec.tenant] += _count_table_blocks(other) / self._tenant_weight(other)
        most = max(held, key=lambda tenant: (held[tenant], tenant == request.spec.tenant))
        return [other for other in running if other.spec.tenant == most]

    def find_underserved(self, requests: Iterable[Request], running: Sequence[Request]) -> Iterator[Request]:
        """Requests with which their tenants hold less than another one, counted in slots over weight."""
        held: defaultdict[str, float] = defaultdict(float)
        for other in running:
            held[other.spec.tenant] += other.slots / self._tenant_weight(other)
        largest = nlargest(2, held.items(), key=lambda item: item[1])
        for request in requests:
            wanted = _required_holding(held.get(request.spec.tenant, 0.0), request.slots / self._tenant_weight(request))
            if any(slots > wanted for tenant, slots in largest if tenant != request.spec.tenant):
                yield request

    def find_victims(
        self,
        request: Request,
        blocks: int,
        running: Sequence[Request],
        eligible: Sequence[Request],
        missing: int,
        fits: Callable[[Collection[Request]], bool],
    ) -> list[Request]:
        """Requests of ``eligible`` to preempt so that ``request`` can run, those of the largest tenant first.

        Empty where that takes more than other tenants must release. ``blocks``: KV blocks that it would hold, with
        shared ones; ``missing``: slots that others must leave for it; ``fits``: whether memory is enough once these
        have left.
        """
        # Leaders stand for all sequences of their requests.
        own = [other for other in running if other.leader is other and other.spec.tenant == request.spec.tenant]
        left = [other for other in eligible if other.leader is other and other.spec.tenant != request.spec.tenant]
        left = [other for other in left if self._queue.service_lead(request, other) == 0]
        weight, victims = self._tenant_weight(request), list[Request]()
        slots = _required_holding(sum(map(_count_slots, own)), request.slots) / weight
        held_blocks = _required_holding(sum(map(_count_blocks, own)), blocks) / weight
        while missing > sum(map(_count_slots, victims)) or not fits(victims):
            short_of_slots = missing > sum(map(_count_slots, victims))
            size, wanted = (_count_slots, slots) if short_of_slots else (_count_blocks, held_blocks)
            victim = self._choose_victim(left, size, wanted, spares_branched=bool(own) or not short_of_slots)
            if victim is None:
                return []
            victims.append(victim)
            left.remove(victim)
        return victims

    def _choose_victim(
        self, running: Sequence[Request], size: Callable[[Request], int], wanted: float, *, spares_branched: bool
    ) -> Request | None:
        """The least computed request of the largest tenant that still holds ``wanted`` without it.

        A request with several sequences may be all that its tenant runs, so that nothing is left. A
        tenant that runs nothing preempts it, as its sequences go on later from where they were.
        """
        held: defaultdict[str, float] = defaultdict(float)
        for other in running:
            held[other.spec.tenant] += size(other) / self._tenant_weight(other)

        def gives_up(other: Request) -> bool:
            rest = held[other.spec.tenant] - size(other) / self._tenant_weight(other)
            return rest >= wanted or (other.width > 1 and not spares_branched and held[other.spec.tenant] > wanted)

        victims = [other for other in running if gives_up(other)]
        return min(victims, key=lambda r: (-held[r.spec.tenant], r.num_computed, -r.spec.arrival), default=None)

    def _tenant_weight(self, request: Request) -> float:
        tenant, limits = request.spec.tenant, request.spec.limits
        return self._weights.get(tenant, 1.0) if limits is None else limits.weight


def _required_holding(held: float, more: float) -> float:
    """What another tenant must be left with for one that holds ``held`` to get ``more``."""
    return MIN_HOLDING_RATIO * (held + more) if held else more


def _count_slots(request: Request) -> int:
    return max(request.slots, len(request.sequences))


def _count_blocks(request: Request) -> int:
    return sum(map(_count_table_blocks, request.sequences))


def _count_table_blocks(sequence: Request) -> int:
    """Blocks in the sequence's table; 0 stands for those that a window has released."""
    block_ids = sequence.block_table.block_ids
    return len(block_ids) - block_ids.count(0)
