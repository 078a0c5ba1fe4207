"""Paged caches with sequences of any length in them, and poison wherever no kernel may read."""

from dataclasses import dataclass

import torch
from tests.kernels.device.guard_bands import poison

from paternoster_kernels import DeviceBatch, RaggedBatch, scaled_cache
from paternoster_kernels.device_batch import plan_attention


@dataclass(frozen=True, slots=True)
class Paged:
    """One layer of a step."""

    cache: torch.Tensor
    batch: DeviceBatch
    host: RaggedBatch

    def alone(self, row: int) -> DeviceBatch:
        """The batch that holds sequence ``row`` alone, on the same cache."""
        host = RaggedBatch(
            *([rows[row]] for rows in (self.host.query_lens, self.host.seq_lens, self.host.block_tables))
        )
        return plan_attention(host, self.cache)


def paged(
    query_lens: list[int],
    seq_lens: list[int],
    kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> Paged:
    """Random keys and values in scattered blocks.

    Poisoned: block 0, blocks that no table names, slots beyond a sequence's end, and what table entries beyond it name.
    """
    device = generator.device
    counts = [-(-length // block_size) for length in seq_lens]
    ids = (2 + torch.randperm(sum(counts), generator=generator, device=device)).tolist()
    tables = [[ids.pop() for _ in range(count)] for count in counts]
    shape = (sum(counts) + 3, kv_heads, block_size, scaled_cache.token_width(head_dim, dtype))
    cache = poison(shape, dtype, device)
    scales = scaled_cache.view_scales(cache).fill_(float("nan")) if scaled_cache.is_scaled(cache) else None
    for table, length in zip(tables, seq_lens, strict=True):
        for index, block in enumerate(table):
            stop = min(block_size, length - index * block_size)
            numbers = torch.randn(kv_heads, stop, 2 * head_dim, generator=generator, device=device)
            if scales is not None:
                numbers = (numbers * 30).clamp(-127, 127)
                scales[block, :, :, :stop] = (
                    0.01 + torch.rand(kv_heads, 2, stop, generator=generator, device=device) / 20
                ).bfloat16()
            scaled_cache.view_numbers(cache)[block, :, :stop] = numbers.to(dtype)
    host = RaggedBatch(query_lens, seq_lens, tables)
    batch = plan_attention(host, cache)
    # Entries past a sequence's end name block 1, which is poisoned and belongs to no sequence.
    past = torch.arange(batch.block_tables.shape[1], device=device) >= torch.tensor(counts, device=device)[:, None]
    batch.block_tables.masked_fill_(past, 1)
    return Paged(cache, batch, host)
