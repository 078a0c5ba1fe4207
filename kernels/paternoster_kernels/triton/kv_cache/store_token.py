"""One token's key and value put into the cache, quantised where the cache is."""

import triton
import triton.language as tl


@triton.jit
def store_token(
    key, value, cache, scales, slot, kv_head,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    WIDTH: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Store ``key`` and ``value [HEAD_PAD]`` float32 at ``slot``.

    As the reference does: NaN and 0 where one of them is not finite.
    """
    if LIMIT == 0:
        key, value = key.to(cache.dtype.element_ty), value.to(cache.dtype.element_ty)
    key, value = key.to(tl.float32), value.to(tl.float32)
    finite = (tl.abs(key) < float("inf")) & (tl.abs(value) < float("inf"))
    broken = tl.min(finite.to(tl.int32), 0) == 0
    key, value = tl.where(broken, float("nan"), key), tl.where(broken, 0.0, value)
    _store_values(key, cache, scales, slot, kv_head, 0, KV_HEADS, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, WIDTH, LIMIT)
    _store_values(value, cache, scales, slot, kv_head, 1, KV_HEADS, HEAD_DIM, HEAD_PAD, BLOCK_SIZE, WIDTH, LIMIT)


@triton.jit
def _store_values(
    values, cache, scales, slot, kv_head, which,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    WIDTH: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Store ``values [HEAD_PAD]`` float32 at ``slot``; ``which`` is 0 for a key, 1 for a value.

    ``WIDTH``: elements of a token in ``cache``. ``LIMIT``: largest number of the cache's format, each vector stored
    over its own scale; 0 for a cache of plain floats. ``scales``: the first page's, of a cache with such.
    """
    page = (slot // BLOCK_SIZE * KV_HEADS + kv_head) * (BLOCK_SIZE * WIDTH)
    dims = tl.arange(0, HEAD_PAD)
    if LIMIT > 0:
        # A maximum loses NaN and a sum keeps it; a vector is NaN in all its numbers or in none.
        stored = ((tl.max(tl.abs(values), 0) + 0.0 * tl.sum(values, 0)) / LIMIT).to(tl.bfloat16)
        tl.store(scales + page // 2 + which * BLOCK_SIZE + slot % BLOCK_SIZE, stored)
        scale = stored.to(tl.float32)
        values = tl.div_rn(values, tl.where(scale == 0.0, 1.0, scale))
        # A scale that was rounded down leads beyond the format's last number.
        values = tl.minimum(tl.maximum(values, -LIMIT), LIMIT)
        if cache.dtype.element_ty == tl.int8:
            values = tl.floor(values + 0.5)
    target = cache + page + slot % BLOCK_SIZE * (2 * HEAD_DIM) + which * HEAD_DIM + dims
    tl.store(target, values.to(cache.dtype.element_ty), mask=dims < HEAD_DIM)
