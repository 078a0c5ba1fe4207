"""Products with four-bit weights: a group is two half-tiles that lie in the two halves of the same bytes."""

import torch
import triton
import triton.language as tl

from paternoster_kernels.triton.dot import dot


@triton.jit
def int4_matmul_kernel(
    x, packed, scales, zeros, out, rows, outputs, groups, x_stride,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of outputs, blocks of rows."""
    HALF: tl.constexpr = GROUP // 2
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    output = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_used = row < rows
    output_used = output < outputs
    byte = tl.arange(0, HALF)
    x_rows = x + row.to(tl.int64)[:, None] * x_stride + byte[None, :]
    packed_rows = packed + output.to(tl.int64)[None, :] * (groups * HALF) + byte[:, None]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for group in range(groups):
        left = tl.load(x_rows + group * GROUP, mask=row_used[:, None], other=0.0)
        right = tl.load(x_rows + group * GROUP + HALF, mask=row_used[:, None], other=0.0)
        both = tl.load(packed_rows + group * HALF, mask=output_used[None, :], other=0)
        zero = tl.load(zeros + output * groups + group, mask=output_used, other=0)
        # Numbers less their zero point are whole and small, so exact in the inputs' format; the scale comes after.
        low = ((both & 15).to(tl.float32) - zero.to(tl.float32)[None, :]).to(left.dtype)
        high = ((both >> 4).to(tl.float32) - zero.to(tl.float32)[None, :]).to(left.dtype)
        part = dot(left, low, tl.zeros([BLOCK_M, BLOCK_N], tl.float32))
        part = dot(right, high, part)
        scale = tl.load(scales + output * groups + group, mask=output_used, other=0.0)
        total += part * scale.to(tl.float32)[None, :]
    target = out + row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=row_used[:, None] & output_used[None, :])


def int4_matmul(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    """Product with int4 weights, which are contiguous. Tiles depend on whether there are more than 64 rows."""
    rows, inputs = x.shape
    outputs, groups = scales.shape
    out = x.new_empty(rows, outputs)
    block_m, block_n = (16, 32) if rows <= 64 else (64, 64)
    int4_matmul_kernel[(triton.cdiv(outputs, block_n), triton.cdiv(rows, block_m))](
        x, packed, scales, zeros, out, rows, outputs, groups, x.stride(0),
        GROUP=inputs // groups, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
