"""A block pool that only counts: who holds which block is of no matter where nothing is shared."""

from collections.abc import Iterable, Sequence
from operator import length_hint

from paternoster_engine.core.kv.block_residency import BlockResidency


class BlockCount:
    """Block pool with an empty prefix cache, without blocks: each is number 0."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_available = num_blocks
        self.num_cached = self.num_cold_used = 0
        self.residency = BlockResidency()
        """Residency of blocks by their numbers: there is none to record."""
        self.text_index = None
        """No text is cached."""

    @property
    def num_free(self) -> int:
        return self.num_available

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_available

    def find_block(self, key: bytes) -> int | None:
        """Nothing is ever found."""
        return None

    def count_unheld(self, block_ids: Sequence[int], *, cold: bool = False) -> int:
        return 0

    def allocate(self, count: int, *, cold: bool = False) -> list[int]:
        """``count`` nameless blocks; raises ``IndexError``, with nothing changed, when fewer are available."""
        if count > self.num_available:
            raise IndexError(f"{count} blocks were asked for, {self.num_available} are available")
        self.num_available -= count
        return [0] * count

    def share_blocks(self, block_ids: Sequence[int], *, cold: bool = False) -> None:
        assert not block_ids, "nothing is shared without a prefix cache"

    def release(self, block_ids: Iterable[int]) -> None:
        # A reversed list has its length.
        self.num_available += length_hint(block_ids)

    def cache_block(self, block_id: int, key: bytes) -> None:
        """Nothing is kept."""

    def clear_cache(self) -> int:
        return 0
