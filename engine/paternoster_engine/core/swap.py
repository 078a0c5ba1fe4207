"""Preemption by swap: what a victim computed goes to host memory and comes back when it is admitted again."""

from collections.abc import Iterable

from paternoster_engine.core.batch import BlockCopy
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.counters import Counters
from paternoster_engine.core.preemption_cost import PreemptionCost
from paternoster_engine.core.request import Request


class Swap:
    """Host blocks 0..host_blocks-1, who holds them, and the copies that the batch in the making asks for."""

    def __init__(self, config: SchedulerConfig, cost: PreemptionCost, counters: Counters) -> None:
        self._block_size = config.block_size
        self._enabled = config.preemption != "recompute"
        self._auto = config.preemption == "auto"
        self._cost = cost
        self._counters = counters
        self._free = list(range(config.host_blocks))
        self._out: list[BlockCopy] = []
        self._in: list[BlockCopy] = []
        self._read: list[int] = []
        """Host blocks that this batch reads: free once it is sealed, so that none is written before it is read."""

    @property
    def num_free(self) -> int:
        return len(self._free) + len(self._read)

    def save(self, request: Request) -> None:
        """Keep what a victim that is about to lose its blocks has computed, unless it is cheaper to compute it again.

        Nothing is kept either when host memory has no room for all of it.
        """
        count = -(-request.num_computed // self._block_size)
        if not self._enabled or not 0 < count <= len(self._free):
            return
        if self._auto and not self._cost.swap_is_cheaper(request.num_computed, count):
            return
        request.host_block_ids = [self._free.pop() for _ in range(count)]
        request.num_swapped = request.num_computed
        self._out += zip(request.block_ids, request.host_block_ids, strict=False)
        self._counters.swapped_out_blocks += count

    def restore(self, request: Request, num_cached_blocks: int) -> int:
        """Bring a request that was given blocks back, but for the first blocks, which are in the pool already.

        Returns how many of its tokens are computed then.
        """
        copies = list(zip(request.host_block_ids, request.block_ids, strict=False))[num_cached_blocks:]
        self._in += copies
        self._counters.swapped_in_blocks += len(copies)
        self._read += request.host_block_ids
        computed = max(request.num_swapped, num_cached_blocks * self._block_size)
        self._clear(request)
        return computed

    def drop(self, request: Request) -> None:
        """What was saved of the request is of no use any more."""
        self._free += request.host_block_ids
        self._clear(request)

    def take_copies(self) -> tuple[tuple[BlockCopy, ...], tuple[BlockCopy, ...]]:
        """(out, in) for the batch that is sealed now."""
        copies = tuple(self._out), tuple(self._in)
        self._free += self._read
        self._out, self._in, self._read = [], [], []
        return copies

    def check_integrity(self, requests: Iterable[Request], num_blocks: int) -> None:
        """Every host block is free or held by one of ``requests``; raises ``AssertionError``."""
        held = [i for request in requests for i in request.host_block_ids]
        assert sorted([*held, *self._free, *self._read]) == list(range(num_blocks)), (
            "a host block is lost or held twice"
        )

    def _clear(self, request: Request) -> None:
        request.host_block_ids = []
        request.num_swapped = 0
