"""The first half of LoRA over segments: down to the adapter's rank."""

import torch
import triton
import triton.language as tl

from paternoster_kernels.triton.dot import dot
from paternoster_kernels.triton.find_sequence import find_sequence, tile_count

ROWS = 16
BLOCK_K = 64


@triton.jit
def lora_shrink_kernel(
    x, down, out, segment_starts, adapters, segments, inputs, x_stride,
    RANK: tl.constexpr, RANK_PAD: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Grid: tiles of rows."""
    tile = tl.program_id(0)
    segment = find_sequence(segment_starts, tile, segments, ROWS)
    start = tl.load(segment_starts + segment)
    stop = tl.load(segment_starts + segment + 1)
    row = start + (tile - start // ROWS - segment) * ROWS + tl.arange(0, ROWS)
    used = row < stop
    rank = tl.arange(0, RANK_PAD)
    total = tl.zeros([ROWS, RANK_PAD], tl.float32)
    adapter = tl.load(adapters + segment).to(tl.int64)
    if adapter >= 0:
        weight = down + (adapter * RANK + rank)[None, :] * inputs
        for begin in range(0, inputs, BLOCK_K):
            k = begin + tl.arange(0, BLOCK_K)
            left = tl.load(
                x + row.to(tl.int64)[:, None] * x_stride + k[None, :],
                mask=used[:, None] & (k < inputs)[None, :],
                other=0.0,
            )
            right = tl.load(weight + k[:, None], mask=(rank < RANK)[None, :] & (k < inputs)[:, None], other=0.0)
            total = dot(left, right, total)
    tl.store(out + row[:, None] * RANK + rank[None, :], total, mask=used[:, None] & (rank < RANK)[None, :])


def lora_shrink(
    x: torch.Tensor, down: torch.Tensor, segment_starts: torch.Tensor, adapters: torch.Tensor
) -> torch.Tensor:
    """Multiply by ``down``, which has ``x``'s dtype and is contiguous."""
    rows, inputs = x.shape
    rank, segments = down.shape[1], len(adapters)
    out = torch.empty(rows, rank, dtype=torch.float32, device=x.device)
    lora_shrink_kernel[(tile_count(rows, segments, ROWS),)](
        x, down, out, segment_starts, adapters, segments, inputs, x.stride(0),
        RANK=rank, RANK_PAD=max(16, triton.next_power_of_2(rank)), ROWS=ROWS, BLOCK_K=BLOCK_K,
    )  # fmt: skip
    return out
