"""The pool against a model of it: sets and counts."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paternoster_engine.core.kv.block_pool import BlockPool

BLOCKS = 6


class PoolMachine(RuleBasedStateMachine):
    """Takes, shares, remembers and releases at random."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS)
        self.tables: list[list[int]] = []
        self.next_key = 0
        self.cold: dict[int, bool] = {}
        """Whether only a lower lane has used what the block holds."""

    def warm_keys(self) -> set[bytes]:
        blocks = {key: self.pool.find_block(key) for key in self.pool.cached_keys}
        return {key for key, block in blocks.items() if block is not None and not self.cold[block]}

    @rule(count=st.integers(0, BLOCKS + 1), cold=st.booleans())
    def allocate_blocks(self, count: int, cold: bool) -> None:
        pool, before = self.pool, self.warm_keys()
        if count > (pool.num_available_cold if cold else pool.num_available):
            with pytest.raises(IndexError):
                pool.allocate(count, cold=cold)
            return
        blocks = pool.allocate(count, cold=cold)
        assert not cold or self.warm_keys() == before, "a lower lane evicts nothing that the first has cached"
        self.cold.update(dict.fromkeys(blocks, cold))
        assert 0 not in blocks
        assert not any(block in table for table in self.tables for block in blocks), "a held block was handed out"
        self.tables.append(blocks)

    @rule(data=st.data())
    def remember(self, data: st.DataObject) -> None:
        held = [block for table in self.tables for block in table]
        if held:
            self.next_key += 1
            self.pool.cache_block(data.draw(st.sampled_from(held)), str(self.next_key).encode())

    @rule(data=st.data(), key=st.integers(1, 12))
    def compute_again(self, data: st.DataObject, key: int) -> None:
        """Another block gets the content of a cached one, as where two requests compute one prefix."""
        held, name = [block for table in self.tables for block in table], str(key).encode()
        if held and (cached := self.pool.find_block(name)) is not None:
            block = data.draw(st.sampled_from(held))
            had_key = any(self.pool.find_block(each) == block for each in self.pool.cached_keys)
            assert not self.pool.cache_block(block, name), "it is not new"
            replaced = not had_key and self.cold[cached] and not self.cold[block]
            assert self.pool.find_block(name) == (block if replaced else cached)

    @rule(key=st.integers(1, 12), cold=st.booleans())
    def share(self, key: int, cold: bool) -> None:
        block = self.pool.find_block(str(key).encode())
        if block is not None:
            self.pool.share_blocks([block], cold=cold)
            self.tables.append([block])
            self.cold[block] &= cold

    @rule()
    def cool(self) -> None:
        """A lower lane gets cached blocks too, once no request of the first lane has used them for a time."""
        self.pool.cool_unused(1.0)
        held = {block for table in self.tables for block in table}
        cached = [self.pool.find_block(key) for key in self.pool.cached_keys]
        self.cold.update({block: True for block in cached if block is not None and block not in held})
        assert self.pool.num_available_cold == self.pool.num_available

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.tables:
            table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
            self.pool.release(reversed(table))

    @rule()
    def forget(self) -> None:
        cached = self.pool.num_cached
        assert self.pool.clear_cache() == cached
        assert self.pool.num_cached == 0

    @invariant()
    def balanced(self) -> None:
        self.pool.check_integrity(self.tables)
        held = {block for table in self.tables for block in table}
        assert self.pool.num_used == len(held)
        assert self.pool.num_cold_used == sum(self.cold[block] for block in held)
        assert self.pool.num_available - self.pool.num_available_cold == len(
            {self.pool.find_block(key) for key in self.warm_keys()} - held
        )
        assert self.pool.num_used + self.pool.num_cached + self.pool.num_free == BLOCKS


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_content_is_evicted_least_recently_used_first_and_after_the_useless() -> None:
    pool = BlockPool(3)
    a, b, c = pool.allocate(3)
    pool.cache_block(a, b"a")
    pool.cache_block(b, b"b")
    pool.release([a])
    pool.release([b])
    pool.release([c])
    assert pool.allocate(2) == [c, a], "c holds nothing of use; a was released before b"
    assert pool.find_block(b"a") is None
    assert pool.find_block(b"b") == b


def test_releasing_twice_is_an_error() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.release([block])
    with pytest.raises(AssertionError, match="released twice"):
        pool.release([block])
