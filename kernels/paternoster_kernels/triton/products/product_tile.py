"""One tile of a product by weights, summed through the inputs in order."""

import triton
import triton.language as tl

from paternoster_kernels.triton.dot import dot


@triton.jit
def product_tile(
    x, weight, rows, outputs, inputs, x_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """This program's tile in float32, and which rows and outputs it is of; weights are widened to the type of ``x``."""
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    output = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    x_rows = x + row.to(tl.int64)[:, None] * x_stride
    weight_rows = weight + output.to(tl.int64)[None, :] * inputs
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, inputs, BLOCK_K):
        k = start + inner
        left = tl.load(x_rows + k[None, :], mask=(row < rows)[:, None] & (k < inputs)[None, :], other=0.0)
        right = tl.load(weight_rows + k[:, None], mask=(output < outputs)[None, :] & (k < inputs)[:, None], other=0.0)
        total = dot(left, right.to(left.dtype), total)
    return total, row, output
