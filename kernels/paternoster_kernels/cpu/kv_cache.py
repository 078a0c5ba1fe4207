"""Writing keys and values into a paged cache of tiles.

A cache that the C++ reads does not hold rows of ``head_dim`` numbers but, in the same memory, the tiles that products
with them take: ``native/pages.h`` says how; scales of int8 are where :mod:`paternoster_kernels.scaled_cache` has them.
Whole blocks may be copied and moved as they are.
"""

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.library import require_library
from paternoster_kernels.scaled_cache import head_dim_of, is_scaled

HEAD_DIM_STEP, MAX_HEAD_DIM = 16, 256
"""Heads must be whole steps, and no larger."""
STEP = 32
"""Tokens that are taken together: blocks must be whole steps."""


def is_tiled(cache: torch.Tensor) -> bool:
    """Whether one layer's ``cache`` holds tiles; else it holds rows."""
    block_size, head_dim = cache.shape[2], head_dim_of(cache)
    whole_steps = block_size % STEP == 0 and head_dim % HEAD_DIM_STEP == 0 and head_dim <= MAX_HEAD_DIM
    return cache.dtype in (torch.bfloat16, torch.int8) and whole_steps and cache.is_contiguous()


def kv_write(keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Write keys and values into slots of the cache, as in the reference."""
    if is_tiled(cache):
        _write_rows(torch.cat((keys, values), 1), cache, slots)
    else:
        reference.kv_write(keys, values, cache, slots)


def rope_kv_write(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    rotary_table: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Rotate queries and keys, and write keys and values into the cache, as in the reference."""
    if not is_tiled(cache):
        reference.rope_kv_write(qkv, positions, rotary_table, cache, slots)
        return
    kv_heads, block_size, head_dim = *cache.shape[1:3], head_dim_of(cache)
    angles = rotary_table.dtype == torch.float32 and rotary_table.is_contiguous()
    if not (angles and qkv.dtype == torch.bfloat16 and qkv.is_contiguous()):
        rows = qkv.new_empty(len(qkv), kv_heads, 1, 2 * head_dim)
        own = torch.where(slots >= 0, torch.arange(len(qkv)), -1)
        reference.rope_kv_write(qkv, positions, rotary_table, rows, own)
        _write_rows(torch.cat(rows.squeeze(2).chunk(2, -1), 1), cache, slots)
        return
    require_library().rope_kv_write(
        qkv.data_ptr(),
        positions.data_ptr(),
        rotary_table.data_ptr(),
        cache.data_ptr(),
        is_scaled(cache),
        slots.data_ptr(),
        len(qkv),
        qkv.shape[1] // head_dim - 2 * kv_heads,
        kv_heads,
        head_dim,
        rotary_table.shape[1],
        block_size,
        torch.get_num_threads(),
    )


def _write_rows(rows: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """``rows [tokens, 2 * kv_heads, head_dim]``: all keys of a token, then all its values."""
    kv_heads, block_size = cache.shape[1:3]
    rows = rows.to(torch.bfloat16).contiguous()
    require_library().kv_write(
        rows.data_ptr(),
        2 * kv_heads,
        cache.data_ptr(),
        is_scaled(cache),
        slots.data_ptr(),
        len(rows),
        kv_heads,
        rows.shape[2],
        block_size,
        torch.get_num_threads(),
    )
