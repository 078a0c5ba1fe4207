"""Attention over the paged cache."""

import torch

from paternoster_kernels import device_batch, reference
from paternoster_kernels.cpu.kv_cache import is_tiled
from paternoster_kernels.cpu.library import require_library
from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.ragged_batch import RaggedBatch
from paternoster_kernels.reference.plan_attention import AttentionPlan
from paternoster_kernels.scaled_cache import is_scaled


def plan_attention(batch: RaggedBatch, cache: torch.Tensor) -> DeviceBatch | AttentionPlan:
    """Plan attention; by the type of the plan the C++ or the reference reads this cache."""
    return device_batch.plan_attention(batch, cache) if is_tiled(cache) else reference.plan_attention(batch, cache)


def paged_attention(
    queries: torch.Tensor,
    cache: torch.Tensor,
    plan: DeviceBatch | AttentionPlan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of each new token to the tokens of its sequence up to itself, as in the reference.

    ``queries [tokens, heads, head_dim]``; ``cache``: one layer's ``[blocks, kv_heads, block_size, 2 * head_dim]``, or
    one of 8 bits.
    """
    if isinstance(plan, AttentionPlan) or not is_tiled(cache):
        return reference.paged_attention(queries, cache, plan, scale, window=window, softcap=softcap, sinks=sinks)
    _, heads, head_dim = queries.shape
    dtype = queries.dtype
    if dtype != torch.bfloat16 or queries.stride()[1:] != (head_dim, 1):
        queries = queries.to(torch.bfloat16).contiguous()
    if sinks is not None:
        sinks = sinks.to(torch.bfloat16).contiguous()
    out = torch.empty(queries.shape, dtype=torch.bfloat16)
    require_library().paged_attention(
        out.data_ptr(),
        queries.data_ptr(),
        queries.stride(0),
        cache.data_ptr(),
        is_scaled(cache),
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
        window or 0,
        softcap or 0.0,
        None if sinks is None else sinks.data_ptr(),
        torch.get_num_threads(),
    )
    return out.to(dtype)
