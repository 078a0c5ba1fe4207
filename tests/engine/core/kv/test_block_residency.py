"""How long sampled blocks stay, against a pool that is driven by hand."""

import random
from itertools import pairwise

import pytest

from paternoster_engine.core.kv.block_pool import BlockPool
from paternoster_engine.core.kv.block_residency import MEAN_INTERVAL, BlockResidency, Distribution


def _counts(distribution: Distribution) -> tuple[int, float]:
    return sum(distribution.counts), distribution.total


def test_a_distribution_counts_values_up_to_each_edge() -> None:
    distribution = Distribution((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        distribution.observe(value)
    assert distribution.counts == [2, 2, 1]
    assert distribution.total == 8.0


def test_a_followed_block_tells_of_its_accesses_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockResidency, "_draw_interval", lambda self: 1)
    pool = BlockPool(1)
    residency = pool.residency
    residency.now = 10.0
    (block,) = pool.allocate(1)
    pool.cache_block(block, b"key")
    pool.release([block])
    residency.now = 12.0
    pool.share_blocks([block])
    residency.record_access([block])
    residency.now = 15.0
    residency.record_access([block])
    pool.release([block])
    assert _counts(residency.lifetime) == (0, 0.0), "it is still there"
    residency.now = 21.0
    pool.allocate(1)
    assert _counts(residency.lifetime) == (1, 11.0)
    assert _counts(residency.idle_before_evict) == (1, 6.0)
    assert _counts(residency.reuse_gap) == (2, 5.0)


def test_one_of_a_hundred_allocations_is_followed_whatever_their_sizes() -> None:
    residency, sizes = BlockResidency(), random.Random(1)
    followed, first = [], 0
    while first < 200_000:
        count = sizes.choice((1, 7, MEAN_INTERVAL, 1000))
        blocks = range(first, first + count)
        before = set(residency._followed)
        residency.record_allocation(blocks)
        followed += sorted(residency._followed.keys() - before)
        first += count
    assert first / len(followed) == pytest.approx(MEAN_INTERVAL, rel=0.05)
    gaps = {later - earlier for earlier, later in pairwise(followed)}
    assert min(gaps) < MEAN_INTERVAL / 10
    assert max(gaps) < 2 * MEAN_INTERVAL
