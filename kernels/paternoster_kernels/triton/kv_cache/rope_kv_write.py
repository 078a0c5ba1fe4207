"""Rotary embedding and the cache write of a fused QKV projection in one launch."""

import torch
import triton
import triton.language as tl

from paternoster_kernels import scaled_cache
from paternoster_kernels.scaled_cache import LIMITS, head_dim_of, is_scaled
from paternoster_kernels.triton.kv_cache.store_token import store_token


@triton.jit
def rope_kv_write_kernel(
    qkv, positions, rotary_table, cache, scales, slots, qkv_stride,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, WIDTH: tl.constexpr,
    LIMIT: tl.constexpr,
):  # fmt: skip
    """Grid: tokens, key heads; a program has one key, its value, and the queries that read them."""
    token = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    angles = rotary_table + tl.load(positions + token) * (2 * HALF)
    start = qkv + token * qkv_stride

    # A thread loads both numbers of its pairs before it stores them: in place without a race.
    query = tl.arange(0, GROUP_PAD)[:, None]
    pair = tl.arange(0, HALF_PAD)[None, :]
    used = (query < GROUP) & (pair < HALF)
    lows = start + (kv_head * GROUP + query) * HEAD_DIM + pair
    low = tl.load(lows, mask=used, other=0.0).to(tl.float32)
    high = tl.load(lows + HALF, mask=used, other=0.0).to(tl.float32)
    cos = tl.load(angles + pair, mask=pair < HALF, other=0.0).to(tl.float32)
    sin = tl.load(angles + HALF + pair, mask=pair < HALF, other=0.0).to(tl.float32)
    tl.store(lows, (low * cos - high * sin).to(qkv.dtype.element_ty), mask=used)
    tl.store(lows + HALF, (high * cos + low * sin).to(qkv.dtype.element_ty), mask=used)

    dims = tl.arange(0, HEAD_PAD)
    key_start = start + (KV_HEADS * GROUP + kv_head) * HEAD_DIM
    key = tl.load(key_start + dims, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)
    rotated = dims < 2 * HALF
    other = tl.where(dims < HALF, dims + HALF, dims - HALF)
    partner = tl.load(key_start + other, mask=rotated, other=0.0).to(tl.float32)
    cos = tl.load(angles + dims % HALF, mask=rotated, other=1.0).to(tl.float32)
    sin = tl.load(angles + HALF + dims % HALF, mask=rotated, other=0.0).to(tl.float32)
    key = key * cos + partner * tl.where(dims < HALF, -sin, sin)
    value = tl.load(key_start + KV_HEADS * HEAD_DIM + dims, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)
    store_token(key, value, cache, scales, slot, kv_head, KV_HEADS, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, WIDTH, LIMIT)


def rope_kv_write(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    rotary_table: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Rotate and write into the cache; it and ``rotary_table`` are contiguous, ``qkv`` may have any row stride."""
    _, kv_heads, block_size, width = cache.shape
    head_dim, half = head_dim_of(cache), rotary_table.shape[1] // 2
    group = qkv.shape[1] // head_dim // kv_heads - 2
    scales = scaled_cache.view_scales(cache) if is_scaled(cache) else cache
    rope_kv_write_kernel[(len(qkv), kv_heads)](
        qkv, positions, rotary_table, cache, scales, slots, qkv.stride(0),
        KV_HEADS=kv_heads, GROUP=group, GROUP_PAD=triton.next_power_of_2(group), HEAD_DIM=head_dim,
        HEAD_PAD=triton.next_power_of_2(head_dim), HALF=half, HALF_PAD=triton.next_power_of_2(half),
        BLOCK_SIZE=block_size, WIDTH=width, LIMIT=LIMITS.get(cache.dtype, 0.0), num_warps=2,
    )  # fmt: skip
