"""Products with int8 or fp8 weights: read as they are stored, widened in registers, scaled once at the end."""

import torch
import triton
import triton.language as tl

from paternoster_kernels.triton.products.product_tile import product_tile


@triton.jit
def weight_only_matmul_kernel(
    x, weight, scales, out, rows, outputs, inputs, x_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of outputs, blocks of rows."""
    total, row, output = product_tile(x, weight, rows, outputs, inputs, x_stride, BLOCK_M, BLOCK_N, BLOCK_K)
    total *= tl.load(scales + output, mask=output < outputs, other=0.0)[None, :]
    target = out + row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (output < outputs)[None, :])


def weight_only_matmul(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Product with a contiguous int8 ``weight``. Tiles depend on whether there are more than 64 rows."""
    rows, inputs = x.shape
    outputs = len(weight)
    out = x.new_empty(rows, outputs)
    block_m, block_n = (16, 32) if rows <= 64 else (64, 64)
    weight_only_matmul_kernel[(triton.cdiv(outputs, block_n), triton.cdiv(rows, block_m))](
        x, weight, scales, out, rows, outputs, inputs, x.stride(0),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=128 if rows <= 64 else 64, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
