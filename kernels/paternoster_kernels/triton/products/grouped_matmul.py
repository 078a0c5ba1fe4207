"""Products of a mixture of experts in one launch: each tile has rows of one expert.

The grid depends on the numbers of pairs and experts alone, so a captured graph runs whatever experts are chosen. Tiles
have one shape, so a row's product depends on it alone (MegaBlocks, arXiv 2211.15841, has the blocks of rows).
"""

import torch
import triton
import triton.language as tl

from paternoster_kernels.triton.dot import dot
from paternoster_kernels.triton.find_sequence import find_sequence, tile_count

BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 64


@triton.jit(do_not_specialize=["experts"])
def grouped_matmul_kernel(
    x, weight, rows, starts, out, experts, outputs, inputs, x_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Grid: blocks of outputs, tiles of pairs."""
    tile = tl.program_id(1)
    expert = find_sequence(starts, tile, experts, BLOCK_M)
    start, stop = tl.load(starts + expert), tl.load(starts + expert + 1)
    pair = start + (tile - (start // BLOCK_M + expert)) * BLOCK_M + tl.arange(0, BLOCK_M)
    used = pair < stop
    output = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    row = tl.load(rows + pair, mask=used, other=0)
    x_rows = x + row[:, None] * x_stride
    weight_rows = weight + (expert.to(tl.int64) * outputs + output)[None, :] * inputs
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first in range(0, inputs, BLOCK_K):
        k = first + inner
        left = tl.load(x_rows + k[None, :], mask=used[:, None] & (k < inputs)[None, :], other=0.0)
        right = tl.load(weight_rows + k[:, None], mask=(output < outputs)[None, :] & (k < inputs)[:, None], other=0.0)
        total = dot(left, right.to(left.dtype), total)
    target = out + pair.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=used[:, None] & (output < outputs)[None, :])


def grouped_matmul(x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Products of groups of rows; ``weight`` is contiguous, ``x`` may have any row stride."""
    experts, outputs, inputs = weight.shape
    pairs = len(rows)
    out = x.new_empty(pairs, outputs)
    if pairs == 0:
        return out
    grouped_matmul_kernel[(triton.cdiv(outputs, BLOCK_N), tile_count(pairs, experts, BLOCK_M))](
        x, weight, rows, starts, out, experts, outputs, inputs, x.stride(0),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
