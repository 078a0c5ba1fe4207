"""A step's keys and values put into the cache."""

import torch
import triton
import triton.language as tl

from paternoster_kernels import scaled_cache
from paternoster_kernels.scaled_cache import LIMITS, is_scaled
from paternoster_kernels.triton.kv_cache.store_token import store_token


@triton.jit
def kv_write_kernel(
    keys, values, cache, scales, slots, key_stride, value_stride, key_head_stride, value_head_stride,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    WIDTH: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Grid: tokens, key heads."""
    token = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    dims = tl.arange(0, HEAD_PAD)
    used = dims < HEAD_DIM
    key = tl.load(keys + token * key_stride + kv_head * key_head_stride + dims, mask=used, other=0.0)
    value = tl.load(values + token * value_stride + kv_head * value_head_stride + dims, mask=used, other=0.0)
    key, value = key.to(tl.float32), value.to(tl.float32)
    store_token(key, value, cache, scales, slot, kv_head, KV_HEADS, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, WIDTH, LIMIT)


def kv_write(keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Write keys and values into slots of the cache; any strides but the last are welcome."""
    tokens, kv_heads, head_dim = keys.shape
    scales = scaled_cache.view_scales(cache) if is_scaled(cache) else cache
    kv_write_kernel[(tokens, kv_heads)](
        keys, values, cache, scales, slots, keys.stride(0), values.stride(0), keys.stride(1), values.stride(1),
        KV_HEADS=kv_heads, HEAD_DIM=head_dim, HEAD_PAD=triton.next_power_of_2(head_dim), BLOCK_SIZE=cache.shape[2],
        WIDTH=cache.shape[3], LIMIT=LIMITS.get(cache.dtype, 0.0), num_warps=1,
    )  # fmt: skip
