"""How long KV blocks stay in the pool, and how long they lie there unused; sampled, so that steps do not pay for it."""

import random
from bisect import bisect_left
from collections.abc import Sequence

from paternoster_contract.metrics import KV_RESIDENCY_BUCKETS

MEAN_INTERVAL = 100
"""One allocated block of this many is followed, as by the default of vLLM's ``--kv-cache-metrics-sample``."""


class Distribution:
    """Counts of values by upper edges, and their sum; written by one thread, read by any."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        """Values up to each edge and above the one before it; the last entry counts those above all edges."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value


class BlockResidency:
    """Follows sampled blocks from their allocation until another allocation evicts what they hold.

    An access is the allocation, or a hit of the prefix cache, as in vLLM. Times are of the scheduler's clock, as it was
    when the step began; distributions have edges in seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.lifetime = Distribution(KV_RESIDENCY_BUCKETS)
        """Allocation to eviction."""
        self.idle_before_evict = Distribution(KV_RESIDENCY_BUCKETS)
        """Last access to eviction."""
        self.reuse_gap = Distribution(KV_RESIDENCY_BUCKETS)
        """Access to next access."""
        # A fixed seed: equal runs follow equal blocks.
        self._random = random.Random(0)
        self._followed: dict[int, tuple[float, float]] = {}
        """Block -> when it was allocated, and last accessed."""
        self._until_sample = self._draw_interval() - 1
        """Blocks to pass over before the next one that is followed."""

    def record_allocation(self, block_ids: Sequence[int]) -> None:
        """Record that these blocks were allocated, which evicts what they held."""
        if self._followed:
            for block_id in block_ids:
                if block_id in self._followed:
                    self._record_eviction(block_id)
        self._until_sample -= len(block_ids)
        while self._until_sample < 0:
            # Negative, so it counts from the end of what was allocated.
            self._followed[block_ids[self._until_sample]] = self.now, self.now
            self._until_sample += self._draw_interval()

    def record_access(self, block_ids: Sequence[int]) -> None:
        """Record that a request begins with these blocks, which the prefix cache found."""
        if not self._followed:
            return
        for block_id in block_ids:
            times = self._followed.get(block_id)
            if times is not None:
                self.reuse_gap.observe(self.now - times[1])
                self._followed[block_id] = times[0], self.now

    def _record_eviction(self, block_id: int) -> None:
        allocated, accessed = self._followed.pop(block_id)
        self.lifetime.observe(self.now - allocated)
        self.idle_before_evict.observe(self.now - accessed)

    def _draw_interval(self) -> int:
        """Blocks from one that is followed to the next: random, or requests of one size would be sampled askew."""
        return self._random.randint(1, 2 * MEAN_INTERVAL - 1)
