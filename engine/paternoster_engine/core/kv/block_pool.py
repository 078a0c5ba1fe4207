"""KV blocks and their holders: reference counts, a free list in order of reuse, and the cache of full blocks."""

from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Sequence

from paternoster_engine.core.kv.block_residency import BlockResidency
from paternoster_engine.core.kv.cache_events import CacheEvents
from paternoster_engine.core.kv.text_index import TextIndex


class KVCacheBlock:
    """One block of the KV pool; ``prev`` and ``next`` link it into the free list while it has no holder."""

    __slots__ = ("block_id", "cold", "key", "next", "prev", "ref_count", "released_at")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.key: bytes | None = None
        """Prefix-cache key of the block's content, once it is full and computed."""
        self.cold = False
        """Whether only requests of a lower lane have used the content."""
        self.released_at = 0.0
        """Time at which its last holder released it, if the content is cached and not cold."""
        self.prev: KVCacheBlock | None = None
        self.next: KVCacheBlock | None = None


class FreeList:
    """Doubly linked through the blocks themselves: O(1) removal from anywhere when the prefix cache revives a block."""

    def __init__(self) -> None:
        self._root = KVCacheBlock(-1)
        self._root.prev = self._root.next = self._root
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[KVCacheBlock]:
        block = self._root.next
        while block is not self._root:
            assert block is not None
            yield block
            block = block.next

    def append(self, block: KVCacheBlock) -> None:
        """Add a block that is reused last."""
        self._insert(block, self._root.prev, self._root)

    def prepend(self, block: KVCacheBlock) -> None:
        """Add a block that is reused first."""
        self._insert(block, self._root, self._root.next)

    @property
    def first(self) -> KVCacheBlock | None:
        """The block that is reused first; None where there is none."""
        block = self._root.next
        return None if block is self._root else block

    def remove(self, block: KVCacheBlock) -> None:
        assert block.prev is not None
        assert block.next is not None
        block.prev.next, block.next.prev = block.next, block.prev
        block.prev = block.next = None
        self._length -= 1

    def _insert(self, block: KVCacheBlock, prev: KVCacheBlock | None, after: KVCacheBlock | None) -> None:
        assert prev is not None
        assert after is not None
        block.prev, block.next = prev, after
        prev.next = after.prev = block
        self._length += 1


class BlockPool:
    """Blocks 1..num_blocks. Block 0 is the null block: never handed out, and in a table it stands for none."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._blocks = [KVCacheBlock(i) for i in range(num_blocks + 1)]
        self._free = FreeList()
        """Blocks without cached content, and behind them those whose content is cold."""
        self._warm = FreeList()
        """Blocks without a holder whose content is cached and not cold: reused when no other block is free."""
        for block in self._blocks[1:]:
            self._free.append(block)
        self._by_key: dict[bytes, KVCacheBlock] = {}
        self.num_cached = 0
        """Blocks without a holder that the prefix cache can still serve."""
        self.num_cold_used = 0
        """Blocks that requests of lower lanes hold, and no other uses."""
        self.residency = BlockResidency()
        self.events: CacheEvents | None = None
        """Where blocks that become cached or lose their content are recorded; None where nothing reads it."""
        self.text_index: TextIndex | None = None
        """Which text cached blocks came from; None where nothing reads it."""

    @property
    def num_available(self) -> int:
        """Blocks that can be handed out now, cached ones included."""
        return len(self._free) + len(self._warm)

    @property
    def num_available_cold(self) -> int:
        """Blocks that a request of a lower lane can get now: it evicts none of what others have cached."""
        return len(self._free)

    @property
    def num_free(self) -> int:
        """Blocks without a holder and without cached content."""
        return self.num_available - self.num_cached

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_available

    @property
    def cached_keys(self) -> KeysView[bytes]:
        """Contents that the prefix cache can find, in blocks held or not."""
        return self._by_key.keys()

    def find_block(self, key: bytes) -> int | None:
        """The block with this content, held or not."""
        block = self._by_key.get(key)
        return None if block is None else block.block_id

    def count_unheld(self, block_ids: Sequence[int], *, cold: bool = False) -> int:
        """Return how many of ``block_ids`` have no holder: sharing them uses up that many available blocks.

        ``cold``: for a request of a lower lane.
        """
        blocks = [self._blocks[i] for i in block_ids if i]
        return sum(block.ref_count == 0 and (block.cold or not cold) for block in blocks)

    def find_freed(self, tables: Iterable[Sequence[int]], *, cold: bool = False) -> set[int]:
        """Return the blocks that would become available if all of ``tables`` were released.

        ``cold``: to a request of a lower lane.
        """
        held, blocks = Counter(i for table in tables for i in table), self._blocks
        return {i for i, count in held.items() if blocks[i].ref_count == count and (blocks[i].cold or not cold)}

    def allocate(self, count: int, *, cold: bool = False) -> list[int]:
        """Hand out ``count`` blocks, the least recently useful first; ``cold``: to a request of a lower lane.

        Raises ``IndexError``, with nothing changed, when fewer are available.
        """
        available = self.num_available_cold if cold else self.num_available
        if count > available:
            raise IndexError(f"{count} blocks requested, {available} are available")
        allocated = [self._allocate_one(cold) for _ in range(count)]
        self.num_cold_used += cold * count
        self.residency.record_allocation(allocated)
        return allocated

    def is_shared(self, block_id: int) -> bool:
        """Whether the block has more than one holder: then it must not be written to."""
        return self._blocks[block_id].ref_count > 1

    def share_blocks(self, block_ids: Sequence[int], *, cold: bool = False) -> None:
        """Add a holder to each of these blocks, which are held or cached; ``cold``: a request of a lower lane."""
        for i in block_ids:
            if i == 0:
                continue
            block = self._blocks[i]
            if block.ref_count == 0:
                self._list_of(block).remove(block)
                self.num_cached -= 1
                self.num_cold_used += block.cold
            block.ref_count += 1
            if block.cold and not cold:
                block.cold = False
                self.num_cold_used -= 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Remove a holder of each, in the order given; cached content stays until the block is needed."""
        for i in block_ids:
            if i == 0:
                continue
            block = self._blocks[i]
            assert block.ref_count > 0, f"block {i} released twice"
            block.ref_count -= 1
            if block.ref_count > 0:
                continue
            if block.cold:
                self.num_cold_used -= 1
            if block.key is None:
                self._free.prepend(block)
                continue
            block.released_at = self.residency.now
            self._list_of(block).append(block)
            self.num_cached += 1

    def cool_unused(self, since: float) -> None:
        """Let lower lanes evict what no request of the first has used since this time of the scheduler's clock."""
        while (block := self._warm.first) is not None and block.released_at < since:
            self._warm.remove(block)
            block.cold = True
            self._free.append(block)

    def cache_block(self, block_id: int, key: bytes) -> bool:
        """Register the content of a block under ``key``; of several blocks with one content the first is found.

        One that is not cold takes the place of one that is. Returns whether the content is new to the cache.
        """
        block, other = self._blocks[block_id], self._by_key.get(key)
        if block.key is not None or (other is not None and (block.cold or not other.cold)):
            return False
        if other is not None:
            self._forget_content(other)
        block.key = key
        self._by_key[key] = block
        return other is None

    def uncache_key(self, key: bytes) -> None:
        """Remove ``key`` from the prefix cache; requests that hold its block keep it."""
        block = self._by_key.pop(key, None)
        if block is None:
            return
        self._report_removed(key)
        self._forget_content(block)

    def clear_cache(self) -> int:
        """Empty the prefix cache; requests keep the blocks that they hold. Returns how many became free of content."""
        freed = self.num_cached
        while (unheld := self._warm.first) is not None:
            self._warm.remove(unheld)
            self._free.append(unheld)
        for block in self._by_key.values():
            block.key = None
        self._by_key.clear()
        self.num_cached = 0
        if self.events is not None:
            self.events.record_cleared()
        if self.text_index is not None:
            self.text_index.clear()
        return freed

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Every block is accounted for by ``tables`` (the block tables of all holders); raises ``AssertionError``."""
        held = [0] * len(self._blocks)
        for table in tables:
            blocks = [i for i in table if i]
            assert len(set(blocks)) == len(blocks), f"a table names a block twice: {table}"
            for i in blocks:
                held[i] += 1
        free = [*self._free, *self._warm]
        assert len(free) == self.num_available
        assert all(block.key is not None and not block.cold for block in self._warm)
        assert self.num_cold_used == sum(block.cold for block in self._blocks if block.ref_count)
        counts = [block.ref_count for block in self._blocks]
        assert counts == held, f"references: {counts}, holders: {held}"
        assert {block.block_id for block in free} == {i for i, count in enumerate(held) if i and not count}
        assert len([block for block in free if block.key is not None]) == self.num_cached
        assert [block.key for block in self._by_key.values()] == list(self._by_key)

    def _list_of(self, block: KVCacheBlock) -> FreeList:
        """The list that has the block while it has no holder."""
        return self._free if block.key is None or block.cold else self._warm

    def _forget_content(self, block: KVCacheBlock) -> None:
        if block.ref_count == 0:
            self.num_cached -= 1
            self._list_of(block).remove(block)
            self._free.prepend(block)
        block.key = None

    def _allocate_one(self, cold: bool) -> int:
        block = self._free.first or self._warm.first
        assert block is not None
        self._list_of(block).remove(block)
        block.cold = cold
        if block.key is not None:
            del self._by_key[block.key]
            self._report_removed(block.key)
            block.key = None
            self.num_cached -= 1
        block.ref_count = 1
        return block.block_id

    def _report_removed(self, key: bytes) -> None:
        if self.events is not None:
            self.events.record_removed(key)
        if self.text_index is not None:
            self.text_index.remove_key(key)
