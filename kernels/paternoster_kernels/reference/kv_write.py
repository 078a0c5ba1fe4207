"""Storing a step's keys and values in the KV cache."""

import torch

from paternoster_kernels import scaled_cache


def kv_write(keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Write ``keys`` and ``values`` ``[tokens, kv_heads, head_dim]`` into ``cache``.

    ``slots [tokens]``; slot -1: the token is left alone. ``cache``: one layer's ``[blocks, kv_heads, block_size,
    2 * head_dim]``, or one of 8 bits as in :mod:`paternoster_kernels.scaled_cache`.
    """
    real = (slots >= 0).nonzero().squeeze(-1)
    scaled_cache.store(keys[real], values[real], cache, slots[real])
