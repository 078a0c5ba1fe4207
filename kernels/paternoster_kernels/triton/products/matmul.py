"""Products by weights in tiles of one shape, whatever the rows: each sum runs through the inputs in the same order.

cuBLAS chooses kernels, and how to split their sums, by the number of rows; so a row's product depends on its batch.
"""

import torch
import triton
import triton.language as tl

from paternoster_kernels.triton.products.product_tile import product_tile

BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 64


@triton.jit(do_not_specialize=["rows"])
def matmul_kernel(
    x, weight, out, rows, outputs, inputs, x_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of outputs, blocks of rows."""
    total, row, output = product_tile(x, weight, rows, outputs, inputs, x_stride, BLOCK_M, BLOCK_N, BLOCK_K)
    target = out + row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (output < outputs)[None, :])


def matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Product with a contiguous ``weight``; ``x`` may have any row stride. A row's result depends on it alone."""
    rows, inputs = x.shape
    outputs = len(weight)
    out = x.new_empty(rows, outputs)
    if rows == 0:
        return out
    matmul_kernel[(triton.cdiv(outputs, BLOCK_N), triton.cdiv(rows, BLOCK_M))](
        x, weight, out, rows, outputs, inputs, x.stride(0),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
