"""Storing a step's keys and values in the KV cache."""

import torch


def kv_write(keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Write ``keys`` and ``values`` ``[tokens, kv_heads, head_dim]`` into ``cache``.

    ``slots [tokens]``; slot -1: the token is left alone. ``cache``: one layer's ``[blocks, kv_heads, block_size,
    2 * head_dim]``.
    """
    block_size = cache.shape[2]
    real = (slots >= 0).nonzero().squeeze(-1)
    block, offset = slots[real] // block_size, slots[real] % block_size
    cache[block, :, offset] = torch.cat((keys[real], values[real]), -1).to(cache.dtype)
