"""Causal grouped-query attention over a paged KV cache (PagedAttention, arXiv 2309.06180)."""

from typing import NamedTuple

import torch
from torch.nn import functional

from paternoster_kernels.device_batch import DeviceBatch
from paternoster_kernels.reference.plan_attention import AttentionPlan
from paternoster_kernels.reference.unified_attention import unified_attention


def paged_attention(
    queries: torch.Tensor,
    cache: torch.Tensor,
    plan: AttentionPlan | DeviceBatch,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of each new token to the tokens of its sequence up to itself.

    ``queries [tokens, heads, head_dim]``; ``cache``: one layer's ``[blocks, kv_heads, block_size, 2 * head_dim]``,
    with the new tokens' keys and values already in it. Returns ``[tokens, heads, head_dim]``. A :class:`DeviceBatch`
    is what a step on fixed buffers, or on a cache of 8 bits, has in place of a plan. ``window``, ``softcap``,
    ``sinks``: as in :func:`unified_attention`.
    """
    if isinstance(plan, DeviceBatch):
        return unified_attention(queries, cache, plan, scale, window=window, softcap=softcap, sinks=sinks)
    tokens, heads, head_dim = queries.shape
    kv_heads = cache.shape[1]
    pages = cache.view(cache.shape[0] * kv_heads, -1)
    out = queries.new_empty(tokens, heads, head_dim)
    # The query heads of one key head: rows of one matrix in a decode, heads that share it in a prefill.
    grouped = queries.view(tokens, kv_heads, -1, head_dim)
    grouped_out = out.view(tokens, kv_heads, -1, head_dim)
    for group in plan.decodes:
        torch.index_select(pages, 0, group.pages, out=group.gathered)
        keys_values = group.gathered.view(group.rows.stop - group.rows.start, kv_heads, -1, 2 * head_dim)
        keys, values = keys_values.split(head_dim, -1)
        scoring = _Scoring(scale, softcap, None if sinks is None else sinks.view(1, kv_heads, -1, 1))
        grouped_out[group.rows] = _attend_queries(grouped[group.rows], keys, values, group.build_mask(window), scoring)
    for chunk in plan.prefills:
        torch.index_select(pages, 0, chunk.pages, out=chunk.gathered)
        keys_values = chunk.gathered.view(kv_heads, 1, -1, 2 * head_dim)[:, :, : chunk.seq_len]
        keys, values = keys_values.expand(-1, heads // kv_heads, -1, -1).split(head_dim, -1)
        scoring = _Scoring(scale, softcap, None if sinks is None else sinks.view(kv_heads, -1, 1, 1))
        mixed = _attend_queries(
            grouped[chunk.rows].permute(1, 2, 0, 3), keys, values, chunk.build_mask(window), scoring
        )
        grouped_out[chunk.rows] = mixed.permute(2, 0, 1, 3)
    return out


class _Scoring(NamedTuple):
    """How scores of queries and keys are made."""

    scale: float
    softcap: float | None
    sinks: torch.Tensor | None
    """Scores of one further key without a value; None for none."""


def _attend_queries(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scoring: _Scoring
) -> torch.Tensor:
    """Attention of ``queries``; ``mask`` is added to the scores, None for plain causal.

    NaN where a query sees a key that is NaN, and nowhere else, provided that such a key's value is 0.
    """
    mixed = _mix_values(queries, keys, values, mask, scoring)
    # The output is checked because it is small; the keys are masked because minus infinity plus NaN is NaN everywhere.
    if not mixed.isnan().any():
        return mixed
    broken = keys[..., 0].isnan().unsqueeze(-2)
    hidden = queries.new_ones(queries.shape[-2], keys.shape[-2]).triu(1) if mask is None else mask
    sees = (broken & (hidden == 0)).any(-1, keepdim=True)
    keys = keys.masked_fill(broken.transpose(-1, -2), 0.0)
    return _mix_values(queries, keys, values, mask, scoring).masked_fill(sees, float("nan"))


def _mix_values(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scoring: _Scoring
) -> torch.Tensor:
    """The values, weighted by the softmax of the scores."""
    scale, softcap, sinks = scoring
    if softcap is None and sinks is None:
        return functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale
        )
    scores = queries @ keys.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is None:
        mask = torch.full(scores.shape[-2:], float("-inf"), dtype=scores.dtype, device=scores.device).triu(1)
    scores = scores + mask
    if sinks is None:
        return scores.softmax(-1) @ values
    scores = torch.cat((scores, sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)), -1)
    return scores.softmax(-1)[..., :-1] @ values
