"""Causal attention over a paged KV cache written out sequence by sequence: the oracle of the device kernels."""

import torch

from paternoster_kernels import scaled_cache
from paternoster_kernels.device_batch import DeviceBatch


def unified_attention(
    queries: torch.Tensor,
    cache: torch.Tensor,
    batch: DeviceBatch,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of each new token to the tokens of its sequence up to itself, in float32 or in ``queries``' float64.

    ``queries [tokens, heads, head_dim]``; ``cache``: one layer's ``[blocks, kv_heads, block_size, 2 * head_dim]``, or
    one of 8 bits, with the new tokens already in it. ``window``: a token sees itself and ``window - 1`` before it.
    ``softcap``: scores become ``softcap * tanh(score / softcap)`` (Gemma 2, arXiv 2408.00118). ``sinks [heads]``: the
    score of one more key of each head, whose value is nothing (gpt-oss, arXiv 2508.10925).
    Returns ``[tokens, heads, head_dim]`` in ``queries``' dtype.
    """
    kv_heads, block_size = cache.shape[1], cache.shape[2]
    wide = torch.promote_types(queries.dtype, torch.float32)
    out = torch.zeros_like(queries)
    starts = batch.query_starts.tolist()
    for row, (start, stop, length) in enumerate(zip(starts, starts[1:], batch.seq_lens.tolist(), strict=False)):
        if start == stop:
            continue
        table = batch.block_tables[row, : -(-length // block_size)].long()
        # [kv_heads, length, 2 * head_dim]
        stored = scaled_cache.gather_tokens(cache, table, wide).transpose(0, 1).flatten(1, 2)[:, :length]
        keys, values = stored.chunk(2, -1)
        new = queries[start:stop].to(wide).unflatten(1, (kv_heads, -1))
        scores = torch.einsum("tkgd,knd->kgtn", new, keys) * scale
        if softcap is not None:
            scores = softcap * (scores / softcap).tanh()
        position = torch.arange(length - (stop - start), length, device=cache.device)[:, None]
        key_position = torch.arange(length, device=cache.device)
        hidden = key_position > position
        if window is not None:
            hidden |= key_position <= position - window
        scores = scores.masked_fill(hidden, float("-inf"))
        if sinks is not None:
            sink = sinks.to(wide).view(kv_heads, -1, 1, 1).expand(-1, -1, scores.shape[2], 1)
            weights = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        out[start:stop] = torch.einsum("kgtn,knd->tkgd", weights, values).flatten(1, 2).to(queries.dtype)
    return out
