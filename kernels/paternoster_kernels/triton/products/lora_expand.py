"""The second half of LoRA over segments: up from the adapter's rank, added to the base layer's output."""

import torch
import triton
import triton.language as tl

from paternoster_kernels.triton.dot import dot
from paternoster_kernels.triton.find_sequence import find_sequence, tile_count

ROWS = 16
BLOCK_N = 64


@triton.jit
def lora_expand_kernel(
    shrunk, up, scales, out, segment_starts, adapters, segments, outputs, out_stride,
    RANK: tl.constexpr, RANK_PAD: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Grid: tiles of rows, blocks of outputs."""
    tile = tl.program_id(0)
    segment = find_sequence(segment_starts, tile, segments, ROWS)
    adapter = tl.load(adapters + segment).to(tl.int64)
    if adapter < 0:
        return
    start = tl.load(segment_starts + segment)
    stop = tl.load(segment_starts + segment + 1)
    row = start + (tile - start // ROWS - segment) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rank = tl.arange(0, RANK_PAD)
    ranks = rank < RANK
    left = tl.load(shrunk + row[:, None] * RANK + rank[None, :], mask=(row < stop)[:, None] & ranks[None, :], other=0.0)
    weight = up + (adapter * outputs + output)[None, :] * RANK + rank[:, None]
    right = tl.load(weight, mask=(output < outputs)[None, :] & ranks[:, None], other=0.0)
    added = dot(left.to(right.dtype), right, tl.zeros([ROWS, BLOCK_N], tl.float32)) * tl.load(scales + adapter)
    target = out + row.to(tl.int64)[:, None] * out_stride + output[None, :]
    used = (row < stop)[:, None] & (output < outputs)[None, :]
    total = tl.load(target, mask=used, other=0.0).to(tl.float32) + added
    tl.store(target, total.to(out.dtype.element_ty), mask=used)


def lora_expand(
    shrunk: torch.Tensor,
    up: torch.Tensor,
    scales: torch.Tensor,
    segment_starts: torch.Tensor,
    adapters: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Multiply by ``up``, which is contiguous; ``out`` may have any row stride."""
    rows, rank = shrunk.shape
    outputs, segments = up.shape[1], len(adapters)
    lora_expand_kernel[(tile_count(rows, segments, ROWS), triton.cdiv(outputs, BLOCK_N))](
        shrunk, up, scales, out, segment_starts, adapters, segments, outputs, out.stride(0),
        RANK=rank, RANK_PAD=max(16, triton.next_power_of_2(rank)), ROWS=ROWS, BLOCK_N=BLOCK_N,
    )  # fmt: skip
