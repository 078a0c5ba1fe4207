"""Attention among all tokens of a text: that of encoders, and of decoders without a causal mask."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch.nn import functional

QUERIES = 512
"""Queries of a text computed at once where scores are masked or made here, so that no mask is of a whole text."""


def attend_texts(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: Sequence[int],
    scale: float | None = None,
    *,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Each text's own tokens with each other, neighbouring texts of one length together.

    ``queries [tokens, heads, head_dim]``; ``keys`` and ``values`` may have fewer heads. ``lengths``: of each text,
    tokens. ``scale``: None for one over the root of ``head_dim``. ``window``: a token sees those at most so far away.
    ``softcap``, ``sinks``: as in :func:`paternoster_kernels.reference.unified_attention`.
    Returns ``[tokens, heads, head_dim]``.
    """
    shared = queries.shape[1] // keys.shape[1]
    if shared > 1:
        keys, values = keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1)
    parts, first = [], 0
    for length, texts in groupby(lengths):
        rows = slice(first, first + length * sum(1 for _ in texts))
        first = rows.stop
        # [texts, heads, length, head_dim]
        query, key, value = (x[rows].unflatten(0, (-1, length)).transpose(1, 2) for x in (queries, keys, values))
        if softcap is None and sinks is None and (window is None or window >= length - 1):
            mixed = functional.scaled_dot_product_attention(query, key, value, scale=scale)
        else:
            mixed = _attend_pieces(query, key, value, scale or query.shape[-1] ** -0.5, window, softcap, sinks)
        parts.append(mixed.transpose(1, 2).flatten(0, 1))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def rotate_heads(heads: torch.Tensor, positions: torch.Tensor, rotary_table: torch.Tensor) -> None:
    """Rotate ``heads [tokens, heads, head_dim]`` in place; the others as in ``rope_kv_write``."""
    cos, sin = rotary_table[positions].unsqueeze(1).chunk(2, -1)
    half = cos.shape[-1]
    low, high = heads[..., :half].float(), heads[..., half : 2 * half].float()
    heads[..., : 2 * half] = torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def _attend_pieces(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """``[texts, heads, length, head_dim]``, some queries after the other with the keys that they see."""
    length = query.shape[2]
    reach = length if window is None else window
    places = torch.arange(length, device=query.device)
    mixed = []
    for start in range(0, length, QUERIES):
        stop = min(start + QUERIES, length)
        seen = slice(max(0, start - reach), min(length, stop + reach))
        scores = (query[:, :, start:stop] @ key[:, :, seen].transpose(-1, -2)).float() * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        far = (places[seen] - places[start:stop, None]).abs() > reach
        scores = scores.masked_fill(far, float("-inf"))
        if sinks is not None:
            own = sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
            weights = torch.cat((scores, own), -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        mixed.append(weights.to(value.dtype) @ value[:, :, seen])
    return torch.cat(mixed, 2)
