"""A step's keys and values put into the KV cache, and its blocks copied."""

import torch

from paternoster_kernels import scaled_cache


def kv_write(keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Write ``keys`` and ``values`` ``[tokens, kv_heads, head_dim]`` into ``cache``.

    ``slots [tokens]``; slot -1: the token is left alone. ``cache``: one layer's ``[blocks, kv_heads, block_size,
    2 * head_dim]``, or one of 8 bits as in :mod:`paternoster_kernels.scaled_cache`.
    """
    real = (slots >= 0).nonzero().squeeze(-1)
    scaled_cache.store_tokens(keys[real], values[real], cache, slots[real])


def rope_kv_write(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    rotary_table: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Rotate the queries of ``qkv`` in place; write its keys, rotated, and its values into ``cache``.

    ``qkv [tokens, (heads + 2 * kv_heads) * head_dim]``: all query heads, all key heads, all value heads.
    ``rotary_table [length, rotary_dim]``: cosines, then sines; dimensions beyond ``rotary_dim`` are not rotated.
    ``positions``, ``slots`` ``[tokens]``; slot -1: the token is left alone. ``cache``: one layer's ``[blocks, kv_heads,
    block_size, 2 * head_dim]``, or one of 8 bits as in :mod:`paternoster_kernels.scaled_cache`.
    """
    kv_heads, head_dim = cache.shape[1], scaled_cache.head_dim_of(cache)
    real = (slots >= 0).nonzero().squeeze(-1)
    wide = torch.promote_types(qkv.dtype, torch.float32)
    heads = qkv[real].to(wide).unflatten(1, (-1, head_dim))
    cos, sin = rotary_table[positions[real]].to(wide).unsqueeze(1).chunk(2, -1)
    half = cos.shape[-1]
    rotated = heads[:, :-kv_heads]
    low, high = rotated[..., :half].clone(), rotated[..., half : 2 * half].clone()
    rotated[..., :half] = low * cos - high * sin
    rotated[..., half : 2 * half] = high * cos + low * sin
    num_heads = heads.shape[1] - 2 * kv_heads
    qkv[real, : num_heads * head_dim] = heads[:, :num_heads].flatten(1).to(qkv.dtype)
    scaled_cache.store_tokens(heads[:, num_heads:-kv_heads], heads[:, -kv_heads:], cache, slots[real])


def copy_blocks(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    """``target[pairs[i, 1]] = source[pairs[i, 0]]`` for ``pairs [n, 2]`` int64 on ``target``'s device.

    ``source`` and ``target``: ``[blocks, ...]``, contiguous, of one dtype and one shape from the second dimension on;
    they may be the same tensor if no block is both read and written. No block may be written twice.
    """
    target.index_copy_(0, pairs[:, 1], source.index_select(0, pairs[:, 0].to(source.device)).to(target.device))
