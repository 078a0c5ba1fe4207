"""Low-rank adapters (LoRA, arXiv 2106.09685) applied to segments of a batch, each with its own (Punica, 2310.18547)."""

from collections.abc import Sequence

import torch

from paternoster_kernels.lora_batch import LoraBatch


def lora_shrink(
    x: torch.Tensor, down: torch.Tensor, segment_starts: torch.Tensor, adapters: torch.Tensor
) -> torch.Tensor:
    """``x @ down[adapter].T`` by segment, ``[rows, rank]`` float32; zero where a segment's adapter is -1.

    ``x [rows, in]``, ``down [adapters, rank, in]``; segment ``i`` is rows ``segment_starts[i]`` to
    ``segment_starts[i + 1]``; ``segment_starts [segments + 1]`` and ``adapters [segments]`` int32.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    out = torch.zeros(len(x), down.shape[1], dtype=wide, device=x.device)
    for start, stop, adapter in _list_segments(segment_starts, adapters):
        out[start:stop] = x[start:stop].to(wide) @ down[adapter].to(wide).T
    return out


def lora_expand(
    shrunk: torch.Tensor,
    up: torch.Tensor,
    scales: torch.Tensor,
    segment_starts: torch.Tensor,
    adapters: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Add ``scales[adapter] * shrunk @ up[adapter].T`` to ``out [rows, outputs]`` by segment.

    ``shrunk [rows, rank]`` from :func:`lora_shrink`, ``up [adapters, outputs, rank]``, ``scales [adapters]`` float32.
    """
    wide = torch.promote_types(out.dtype, torch.float32)
    for start, stop, adapter in _list_segments(segment_starts, adapters):
        added = shrunk[start:stop].to(wide) @ up[adapter].to(wide).T * scales[adapter].to(wide)
        out[start:stop] = (out[start:stop].to(wide) + added).to(out.dtype)


def add_lora(out: torch.Tensor, x: torch.Tensor, batch: LoraBatch, first: int, widths: Sequence[int]) -> None:
    """Add to ``out [rows, sum of widths]``, made of ``x [rows, inputs]``, what each row's adapter makes of the row.

    Part ``i`` of the outputs, ``widths[i]`` of them, is of matrix ``first + i``. A row's result is the same in any
    batch, as it is multiplied alone; sums are float32, and what is added is rounded once with its sum.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    for adapter, start, stop in zip(batch.adapters, batch.starts, batch.starts[1:], strict=False):
        if adapter is None:
            continue
        begin = 0
        for matrix, width in zip(adapter.matrices[first : first + len(widths)], widths, strict=True):
            if matrix is not None:
                down, up = matrix.down.to(wide).T, matrix.up.to(wide)
                for row in range(start, stop):
                    columns = out[row, begin : begin + width]
                    columns.copy_(columns.to(wide) + (x[row].to(wide) @ down * matrix.scale) @ up)
            begin += width


def _list_segments(segment_starts: torch.Tensor, adapters: torch.Tensor) -> list[tuple[int, int, int]]:
    starts = segment_starts.tolist()
    return [row for row in zip(starts, starts[1:], adapters.tolist(), strict=False) if row[2] >= 0]
