"""A KV cache of numbers of 8 bits: each token's key and each token's value has a scale in each key head.

A page, which is a head's part of a block, has its tokens' numbers first and then the scales, ``[2, block_size]`` in
bfloat16, of the keys and of the values. So whatever copies a block copies its scales. In the tensor's shape a token is
as much longer: ``[blocks, kv_heads, block_size, 2 * head_dim + SCALE_BYTES]``; its last two dimensions mean nothing by
themselves. A stored number is the one that was written over its scale, which takes the largest of a head to the
format's largest: it depends on nothing but that head.
"""

import torch

LIMITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""The largest number of each format."""
SCALE_BYTES = 4
"""Bytes for the scales of a token's key and value in one head."""


def is_scaled(cache: torch.Tensor) -> bool:
    """Whether its numbers have scales; else it holds them as they were written."""
    return cache.dtype in LIMITS


def token_width(head_dim: int, dtype: torch.dtype) -> int:
    """Elements of a token in a head: the cache's last dimension."""
    return 2 * head_dim + (SCALE_BYTES if dtype in LIMITS else 0)


def head_dim_of(cache: torch.Tensor) -> int:
    """Numbers of a head in a cache of either kind."""
    return (cache.shape[-1] - (SCALE_BYTES if is_scaled(cache) else 0)) // 2


def view_numbers(cache: torch.Tensor) -> torch.Tensor:
    """View ``[blocks, kv_heads, block_size, 2 * head_dim]``: each token's key, then its value."""
    if not is_scaled(cache):
        return cache
    block_size, width = cache.shape[2], 2 * head_dim_of(cache)
    view: torch.Tensor = cache.flatten(2)[..., : block_size * width].unflatten(-1, (block_size, width))
    return view


def view_scales(cache: torch.Tensor) -> torch.Tensor:
    """View ``[blocks, kv_heads, 2, block_size]`` bfloat16 of a scaled cache: of keys, and of values."""
    block_size, width = cache.shape[2], 2 * head_dim_of(cache)
    view: torch.Tensor = cache.flatten(2)[..., block_size * width :].view(torch.bfloat16).unflatten(-1, (2, block_size))
    return view


def gather_tokens(cache: torch.Tensor, blocks: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What tokens of ``blocks [...]`` hold, ``[..., kv_heads, block_size, 2 * head_dim]`` in ``dtype``."""
    stored = view_numbers(cache)[blocks].to(dtype)
    if not is_scaled(cache):
        return stored
    by_token = view_scales(cache)[blocks].to(dtype).transpose(-1, -2)
    scaled: torch.Tensor = (stored.unflatten(-1, (2, -1)) * by_token.unsqueeze(-1)).flatten(-2)
    return scaled


def quantize_cache(plain: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A cache that all of ``plain [blocks, kv_heads, block_size, 2 * head_dim]`` was written to."""
    width = token_width(plain.shape[3] // 2, dtype)
    cache = torch.zeros(*plain.shape[:3], width, device=plain.device).to(dtype)
    tokens = plain.transpose(1, 2).flatten(0, 1)
    keys, values = tokens.chunk(2, -1)
    store_tokens(keys, values, cache, torch.arange(len(tokens), device=plain.device))
    return cache


def store_tokens(keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Write ``keys`` and ``values`` ``[tokens, kv_heads, head_dim]`` at ``slots [tokens]``, none of them below 0.

    Where a head's key or value is not finite, the key is stored as NaN and the value as 0: attention that sees the
    token is NaN, and attention that does not see it, and so weighs its value with 0, stays finite.
    """
    block, offset = slots // cache.shape[2], slots % cache.shape[2]
    stored = torch.stack((keys, values), 2)
    if not is_scaled(cache):
        stored = stored.to(cache.dtype)
    broken = ~stored.isfinite().flatten(2).all(-1)
    stored = torch.where(broken[..., None, None], stored.new_tensor([[float("nan")], [0.0]]), stored)
    if is_scaled(cache):
        limit = LIMITS[cache.dtype]
        scale = (stored.abs().amax(-1) / limit).to(torch.bfloat16)
        view_scales(cache)[block, :, :, offset] = scale
        divisor = torch.where(scale == 0, 1, scale).to(stored.dtype)
        # A scale that was rounded down leads beyond the limit.
        stored = (stored / divisor.unsqueeze(-1)).clamp(-limit, limit)
        if cache.dtype == torch.int8:
            stored = (stored + 0.5).floor()
    view_numbers(cache)[block, :, offset] = stored.flatten(2).to(cache.dtype)
