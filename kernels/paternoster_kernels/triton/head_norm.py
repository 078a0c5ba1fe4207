"""Root-mean-square norm of each query and each key in a fused QKV projection, in place."""

import torch
import triton
import triton.language as tl

HEADS_AT_ONCE = 8


@triton.jit
def head_norm_kernel(
    qkv, query_weight, key_weight, eps, qkv_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Grid: tokens, groups of ``ROWS`` heads."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, HEAD_PAD)
    used = (head < HEADS + KV_HEADS)[:, None] & (dims < HEAD_DIM)[None, :]
    start = qkv + token * qkv_stride + head[:, None] * HEAD_DIM + dims[None, :]
    values = tl.load(start, mask=used, other=0.0).to(tl.float32)
    mean = tl.sum(values * values, 1) / HEAD_DIM
    of_query = tl.load(query_weight + dims, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)
    of_key = tl.load(key_weight + dims, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)
    weight = tl.where((head < HEADS)[:, None], of_query[None, :], of_key[None, :])
    scaled = values * (1.0 / tl.sqrt_rn(mean + eps))[:, None] * weight
    tl.store(start, scaled.to(qkv.dtype.element_ty), mask=used)


def head_norm(
    qkv: torch.Tensor, query_weight: torch.Tensor, key_weight: torch.Tensor, kv_heads: int, eps: float
) -> None:
    """RMS norm of each head in place; ``qkv`` may have any row stride."""
    head_dim = len(query_weight)
    heads = qkv.shape[1] // head_dim - 2 * kv_heads
    rows = min(HEADS_AT_ONCE, triton.next_power_of_2(heads + kv_heads))
    head_norm_kernel[(len(qkv), triton.cdiv(heads + kv_heads, rows))](
        qkv, query_weight, key_weight, eps, qkv.stride(0),
        HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, HEAD_PAD=triton.next_power_of_2(head_dim), ROWS=rows,
        num_warps=4,
    )  # fmt: skip
