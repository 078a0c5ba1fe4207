"""Rotary embedding and the cache write of a fused QKV projection, as one operation."""

import torch

LIMITS = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""Largest value that each quantised cache stores."""


def rope_kv_write(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    rotary_table: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    kv_scales: torch.Tensor | None = None,
) -> None:
    """Rotate the queries of ``qkv`` in place; write its keys, rotated, and its values into ``cache``.

    ``qkv [tokens, (heads + 2 * kv_heads) * head_dim]``: all query heads, all key heads, all value heads.
    ``rotary_table [length, rotary_dim]``: cosines, then sines; dimensions beyond ``rotary_dim`` are not rotated.
    ``positions``, ``slots`` ``[tokens]``; slot -1: the token is left alone. ``cache``: one layer's ``[blocks, kv_heads,
    block_size, 2 * head_dim]``. With ``kv_scales [blocks, kv_heads, block_size, 2]`` float32 the cache is int8 or
    fp8 e4m3: each key and value is stored over a scale that takes its largest element to the format's largest number.
    """
    kv_heads, block_size, width = cache.shape[1:]
    head_dim = width // 2
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
    stored = torch.stack((heads[:, num_heads:-kv_heads], heads[:, -kv_heads:]), 2)
    block, offset = slots[real] // block_size, slots[real] % block_size
    if kv_scales is not None:
        scales = stored.abs().amax(-1) / LIMITS[cache.dtype]
        kv_scales[block, :, offset] = scales.to(kv_scales.dtype)
        stored = stored / torch.where(scales == 0, 1, scales).unsqueeze(-1)
        if cache.dtype == torch.int8:
            stored = (stored + 0.5).floor().clamp(-127, 127)
    cache[block, :, offset] = stored.flatten(2).to(cache.dtype)
