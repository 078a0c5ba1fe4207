"""Which requests lose their KV blocks, and whether the blocks are copied to host memory."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from paternoster_contract.access.identity import Lane
from paternoster_engine.core.admission.lanes import RequestLane
from paternoster_engine.core.admission.reservation import Reservation
from paternoster_engine.core.admission.tenant_shares import TenantShares
from paternoster_engine.core.batch import BatchBuilder, BlockCopy
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.stats import Counters
from paternoster_engine.core.waiting.waiting_queue import Deadlines, WaitingQueue


def choose_victim(running: Sequence[Request]) -> Request:
    """The request with the fewest computed tokens, the newest of equals: the least work is thrown away.

    24 to 59 % fewer wasted tokens than preempting the last admitted (vLLM RFC #54644).
    """
    return min(running, key=lambda request: (request.num_computed, -request.spec.arrival))


class Preemption:
    """Takes the blocks of running requests away and puts these back into the queue."""

    def __init__(
        self,
        config: SchedulerConfig,
        lanes: Sequence[RequestLane],
        kv: KVCache,
        swap: "Swap",
        deadlines: Deadlines,
    ) -> None:
        """``lanes``: in their order."""
        self._config = config
        self._lanes = lanes
        self._kv = kv
        self._swap = swap
        self._deadlines = deadlines
        self._shares = [
            TenantShares(config.tenant_weights, lane.queue) if config.order == "fair-share" else None for lane in lanes
        ]

    def make_room(self, request: Request, builder: BatchBuilder) -> None:
        """Preempt a request, possibly ``request`` itself, because the pool has no block for it."""
        if not self.displace(request.spec.lane, builder):
            self.preempt(choose_victim(self._eligible_victims(request)), builder)

    def displace(self, lane: Lane, builder: BatchBuilder) -> bool:
        """Preempt a request of the lowest lane below ``lane`` that runs any; False where none does."""
        for below in reversed(self._lanes[lane + 1 :]):
            if below.running:
                self.preempt(choose_victim(below.running), builder)
                return True
        return False

    def list_above(self, lane: Lane) -> list[Request]:
        """Sequences of the lanes above ``lane`` that hold blocks."""
        return [request for above in self._lanes[:lane] for request in above.running]

    def list_below(self, lane: Lane) -> list[Request]:
        """Sequences of the lanes below ``lane`` that hold blocks."""
        return [request for below in self._lanes[lane + 1 :] for request in below.running]

    def force_preemption(self, builder: BatchBuilder) -> None:
        """Preempt a request, of the first lane that runs any, although the pool has blocks."""
        running = next((lane.running for lane in self._lanes if lane.running), None)
        if running is not None:
            self.preempt(choose_victim(running), builder)

    def preempt(self, request: Request, builder: BatchBuilder, *, for_share: bool = False) -> None:
        """Take all blocks of a running request, with those of all its sequences, and put it into the queue.

        ``for_share``: for another tenant's share; it is not counted as a lack of memory.
        """
        request, lane = request.leader, self._lanes[request.spec.lane]
        for sequence in request.sequences:
            builder.remove(sequence)
            lane.running.remove(sequence)
            if request.branches is None and not request.gives_way:
                # Sequences that share blocks would need many copies: they are computed again. Lower lanes leave host
                # memory to the first.
                self._swap.save(request)
            self._kv.release(sequence)
            sequence.num_computed = sequence.num_cached = 0
            sequence.status = RequestStatus.PREEMPTED
        if request.branches is not None:
            request.branches.fold_branches()
        lane.slots.promised.discard(request)
        builder.preempted.append(request)
        lane.counters.preemptions += 1
        lane.counters.requests_preempted += request.num_preemptions == 0 and not for_share
        request.num_preemptions += 1
        self._deadlines.watch(request)
        lane.queue.end_running(request)
        lane.queue.insert(request)

    def _eligible_victims(self, request: Request) -> Sequence[Request]:
        """Running requests that may be preempted for ``request``: those below its class, else its equals and itself.

        With fair shares, of these the ones of the tenant that holds the most.
        """
        running: Sequence[Request] = self._lanes[request.spec.lane].running
        shares = self._shares[request.spec.lane]
        if self._config.uses_priority:
            below = [other for other in running if other.spec.priority > request.spec.priority]
            running = below or [other for other in running if other.spec.priority == request.spec.priority]
        return running if shares is None else shares.find_largest_tenant(running, request)


class AdmissionPreemption:
    """Chooses victims for a waiting request: only if their blocks and slots suffice, and no more than that takes."""

    def __init__(
        self,
        config: SchedulerConfig,
        queue: WaitingQueue,
        reservation: Reservation,
        kv: KVCache,
        preemption: Preemption,
    ) -> None:
        self._queue = queue
        self._preemption = preemption
        self._reservation = reservation
        self._kv = kv
        self._shares = TenantShares(config.tenant_weights, queue) if config.order == "fair-share" else None

    def find_underserved(self, requests: Iterable[Request], running: Sequence[Request]) -> Iterator[Request]:
        """Requests whose tenants have fewer slots than another one, where slots are shared by tenant."""
        return iter(()) if self._shares is None else self._shares.find_underserved(requests, running)

    def find_victims(
        self,
        request: Request,
        prefix: list[int],
        running: Sequence[Request],
        missing: int,
        eligible: Sequence[Request],
    ) -> list[Request]:
        """Find running requests to preempt so that ``request``, sharing the blocks ``prefix``, can run instead.

        The least important first, of equals those with the least computed; empty when it outranks too few. With fair
        shares those of tenants that hold more. ``missing``: slots under the live cap that they must leave besides the
        memory; a request leaves one for each of its sequences.
        """
        if not self._queue.preempts:
            return []
        if self._shares is not None:
            return self._shares.find_victims(
                request,
                self._kv.groups.count_known_blocks(request),
                running,
                eligible,
                missing,
                lambda victims: self._fits_without(victims, request, prefix, running),
            )
        lower = [other for other in eligible if other.leader is other and self._queue.may_preempt(request, other)]
        lower.sort(key=lambda other: (-other.spec.priority, other.num_computed))

        def frees_enough(victims: Sequence[Request]) -> bool:
            if sum(victim.width for victim in victims) < missing:
                return False
            return self._fits_without(victims, request, prefix, running)

        if not lower or not frees_enough(lower):
            return []
        return next(lower[:count] for count in range(1, len(lower) + 1) if frees_enough(lower[:count]))

    def fits(self, request: Request, prefix: list[int], running: Sequence[Request]) -> bool:
        """Whether there are blocks for ``request``, sharing ``prefix``; those that lower lanes hold count as free."""
        if self._can_admit(request, running, self._kv.count_new_blocks(request, prefix), 0):
            return True
        has_lower = bool(self._preemption.list_below(request.spec.lane))
        return has_lower and self._fits_without((), request, prefix, running)

    def _fits_without(
        self, victims: Collection[Request], request: Request, prefix: list[int], running: Sequence[Request]
    ) -> bool:
        """Whether ``request`` fits once ``victims``, and all requests of lower lanes, hold no blocks."""
        leaving = [sequence for victim in victims for sequence in victim.sequences]
        leaving += self._preemption.list_below(request.spec.lane)
        tables = [sequence.block_table.block_ids for sequence in leaving]
        freed = self._kv.pool.find_freed(tables, cold=request.gives_way)
        new = self._kv.count_new_blocks(request, prefix) + len(freed.intersection(prefix))
        rest = [other for other in running if other.leader not in victims]
        return self._can_admit(request, rest, new, len(freed))

    def _can_admit(self, request: Request, running: Sequence[Request], new: int, freed: int) -> bool:
        """Whether ``request`` may take ``new`` blocks beside ``running`` requests of its lane and those above."""
        available = self._kv.count_available(request) + freed
        if request.gives_way:
            # Memory that is reserved for it may be what others have cached.
            if new > available:
                return False
            running = [*self._preemption.list_above(request.spec.lane), *running]
        return self._reservation.can_admit(request, running, new, available)


class Swap:
    """Host blocks 0..host_blocks-1, their holders, and the copies that the next batch makes."""

    def __init__(self, config: SchedulerConfig, counters: Counters) -> None:
        self._block_size = config.block_size
        self._num_groups = len(config.windows)
        self._enabled = config.preemption != "recompute"
        self._counters = counters
        self._free = list(range(config.host_blocks))
        self._out: list[BlockCopy] = []
        self._in: list[BlockCopy] = []
        self._read: list[int] = []
        """Host blocks that this batch reads: free once it is built, so that none is written before it is read."""

    @property
    def num_free(self) -> int:
        return len(self._free) + len(self._read)

    def save(self, request: Request) -> None:
        """Copy a victim's computed blocks to host memory, if it has room for all of them."""
        if not self._enabled:
            return
        end = -(-request.num_computed // self._block_size) * self._num_groups
        # Windows have released the other blocks.
        table = request.block_table
        held = [entry for entry, block_id in enumerate(table.block_ids[:end]) if block_id]
        if not 0 < len(held) <= len(self._free):
            return
        table.host_block_ids = {entry: self._free.pop() for entry in held}
        table.num_swapped = request.num_computed
        self._out += [(table.block_ids[entry], host) for entry, host in table.host_block_ids.items()]
        self._counters.swapped_out_blocks += len(held)

    def restore(self, request: Request, num_cached: int) -> int:
        """Copy a request back into its new blocks, except its first tokens, which are in the pool already.

        Returns how many of its tokens are computed then.
        """
        cached = num_cached // self._block_size * self._num_groups
        saved = request.block_table.host_block_ids
        copies = [(host, request.block_table.block_ids[entry]) for entry, host in saved.items() if entry >= cached]
        self._in += copies
        self._counters.swapped_in_blocks += len(copies)
        self._read += saved.values()
        computed = max(request.block_table.num_swapped, num_cached)
        self._clear(request)
        return computed

    def discard(self, request: Request) -> None:
        """Free the host blocks of a request."""
        self._free += request.block_table.host_block_ids.values()
        self._clear(request)

    def take_copies(self) -> tuple[tuple[BlockCopy, ...], tuple[BlockCopy, ...]]:
        """Return the copies (out, in) of the batch that is built now."""
        copies = tuple(self._out), tuple(self._in)
        self._free += self._read
        self._out, self._in, self._read = [], [], []
        return copies

    def check_integrity(self, requests: Iterable[Request], num_blocks: int) -> None:
        """Every host block is free or held by one of ``requests``; raises ``AssertionError``."""
        held = [i for request in requests for i in request.block_table.host_block_ids.values()]
        assert sorted([*held, *self._free, *self._read]) == list(range(num_blocks)), (
            "a host block is lost or held twice"
        )

    def _clear(self, request: Request) -> None:
        request.block_table.host_block_ids = {}
        request.block_table.num_swapped = 0
