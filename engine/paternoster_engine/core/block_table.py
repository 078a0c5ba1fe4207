"""The KV blocks of one sequence. :class:`KVCache` and :class:`Swap` change a table; everything else reads it."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class BlockTable:
    """Row ``i`` holds tokens ``i*block_size`` to ``(i+1)*block_size - 1``, in one block for each group of layers."""

    block_ids: list[int] = field(default_factory=list)
    """Row after row; see :mod:`core.kv.kv_groups`. 0 where a window has released the block, or needs none yet."""
    num_writable: int = 0
    """Tokens up to which the table has all the blocks that steps write to."""
    shares_tail: bool = False
    """Another sequence may hold the last block, too: the first to write to it takes a copy."""
    row_keys: list[bytes] = field(default_factory=list)
    """Prefix-cache keys of the first full rows, computed on demand."""
    num_cached_rows: int = 0
    """Leading rows that are computed: the prefix cache has them, and windows have moved past them."""
    claimed_key: bytes | None = None
    """Prefix-cache key of the row that the sequence computes now and other requests may wait for."""
    host_block_ids: dict[int, int] = field(default_factory=dict)
    """Index in ``block_ids`` -> block of host memory, while the sequence is swapped out."""
    num_swapped: int = 0
    """Tokens whose keys and values are in host memory."""
