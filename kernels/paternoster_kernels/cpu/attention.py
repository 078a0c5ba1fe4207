"""Attention over the paged cache."""

import torch

from paternoster_kernels import device_batch, reference
from paternoster_kernels.cpu.library import library
from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.ragged_batch import RaggedBatch
from paternoster_kernels.reference.plan_attention import AttentionPlan

HEAD_DIMS = (64, 128)
STEP = 32
"""Tokens that are taken together: blocks must be whole steps."""


def plan_attention(batch: RaggedBatch, cache: torch.Tensor) -> DeviceBatch | AttentionPlan:
    """As the reference; the plan says, by its type, whether the C++ or the reference reads this cache."""
    return device_batch.plan_attention(batch, cache) if _reads(cache) else reference.plan_attention(batch, cache)


def _reads(cache: torch.Tensor) -> bool:
    """Whether the C++ takes this cache."""
    block_size, width = cache.shape[2:]
    whole_steps = block_size % STEP == 0 and width // 2 in HEAD_DIMS
    return cache.dtype == torch.bfloat16 and whole_steps and cache.is_contiguous()


def kv_write(keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, plan: DeviceBatch | AttentionPlan) -> None:
    """As the reference."""
    if isinstance(plan, AttentionPlan):
        reference.kv_write(keys, values, cache, plan)
        return
    real = plan.slots >= 0
    block, offset = plan.slots[real] // cache.shape[2], plan.slots[real] % cache.shape[2]
    cache[block, :, offset] = torch.cat((keys, values), -1)[real]


def paged_attention(
    queries: torch.Tensor, cache: torch.Tensor, plan: DeviceBatch | AttentionPlan, scale: float
) -> torch.Tensor:
    """As the reference: attention of each new token to the tokens of its sequence up to itself.

    ``queries [tokens, heads, head_dim]``; ``cache``: one layer's ``[blocks, kv_heads, block_size, 2 * head_dim]``.
    """
    if isinstance(plan, AttentionPlan) or not _reads(cache):
        return reference.paged_attention(queries, cache, plan, scale)
    _, heads, head_dim = queries.shape
    if queries.dtype != cache.dtype or queries.stride()[1:] != (head_dim, 1):
        queries = queries.to(cache.dtype).contiguous()
    out = torch.empty(queries.shape, dtype=queries.dtype)
    library().paged_attention(
        out.data_ptr(),
        queries.data_ptr(),
        queries.stride(0),
        cache.data_ptr(),
        heads,
        cache.shape[1],
        head_dim,
        cache.shape[2],
        plan.query_starts.data_ptr(),
        plan.seq_lens.data_ptr(),
        plan.block_tables.data_ptr(),
        plan.block_tables.shape[1],
        len(plan.seq_lens),
        scale,
        torch.get_num_threads(),
    )
    return out
