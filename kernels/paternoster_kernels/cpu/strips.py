"""Products with matrices that are kept in blocks of few bits."""

from collections.abc import Sequence

import torch

from paternoster_kernels.blocks import BF16, STRIP, Rows, Strips, interleave_rows, strip_bytes
from paternoster_kernels.cpu.elementwise import Gate
from paternoster_kernels.cpu.huge_pages import WEIGHTS
from paternoster_kernels.cpu.library import require_library

PIECE_BYTES = 2**21
"""Bytes of a matrix that are read at once."""


def pack_strips(matrices: Sequence[Rows], gated: bool = False) -> Strips:
    """Pack strips, a few rows at a time; all matrices are such as :func:`.blocks.fits` allows.

    Numbers, beside blocks, are kept as tiles of bfloat16. ``gated``: a strip of the first half and one of the second in
    turns.
    """
    inputs = matrices[0].shape[1]
    sizes = [strip_bytes(matrix.format, inputs) for matrix in matrices]
    counts = [matrix.shape[0] // STRIP for matrix in matrices]
    data = WEIGHTS.empty(sum(size * count for size, count in zip(sizes, counts, strict=True)))
    table, at = [], 0
    for matrix, size, count in zip(matrices, sizes, counts, strict=True):
        number = BF16 if matrix.format is None else matrix.format.number
        table += [(at + strip * size, number) for strip in range(count)]
        strips = data[at : at + size * count].view(count, size)
        step = max(1, PIECE_BYTES // size)
        for first in range(0, count, step):
            part = strips[first : first + step]
            part.copy_(_cut_strips(matrix, first * STRIP, (first + len(part)) * STRIP))
        at += size * count
    order = torch.tensor(table, dtype=torch.int64)
    if gated:
        order = order.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1).contiguous()
    return Strips(data, order, inputs)


def strip_matmul(x: torch.Tensor, strips: Strips, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Product with strips, bit for bit :func:`.matmul.packed_matmul` of the bfloat16 numbers."""
    return _multiply_strips(x, strips, bias, Gate.NONE)


def strip_gated_matmul(
    x: torch.Tensor, strips: Strips, bias: torch.Tensor | None = None, *, gelu: bool = False
) -> torch.Tensor:
    """Gated product with ``strips`` from :func:`pack_strips` with ``gated``."""
    return _multiply_strips(x, strips, bias, Gate.GELU if gelu else Gate.SILU)


def strip_rows(strips: Strips, rows: torch.Tensor) -> torch.Tensor:
    """Read rows of strips as numbers; ``rows`` int64."""
    rows = rows.contiguous()
    out = torch.empty(*rows.shape, strips.in_features, dtype=torch.bfloat16)
    require_library().packed_rows(
        out.data_ptr(),
        strips.data.data_ptr(),
        strips.table.data_ptr(),
        rows.data_ptr(),
        rows.numel(),
        strips.in_features,
        torch.get_num_threads(),
    )
    return out


def _cut_strips(matrix: Rows, first: int, last: int) -> torch.Tensor:
    rows = matrix.read_rows(first, last)
    if matrix.format is not None:
        return interleave_rows(matrix.format, rows)
    tiles = rows.to(torch.bfloat16).reshape(-1, STRIP, rows.shape[1] // 32, STRIP, 2).permute(0, 2, 3, 1, 4)
    return tiles.contiguous().view(torch.uint8).flatten(1)


def _multiply_strips(x: torch.Tensor, strips: Strips, bias: torch.Tensor | None, gate: Gate) -> torch.Tensor:
    x = x.to(torch.bfloat16).contiguous()
    rows, inputs = x.shape
    outputs = strips.out_features
    out = x.new_empty(rows, outputs // 2 if gate else outputs)
    require_library().packed_matmul(
        out.data_ptr(),
        x.data_ptr(),
        strips.data.data_ptr(),
        strips.table.data_ptr(),
        None if bias is None else bias.data_ptr(),
        rows,
        outputs,
        inputs,
        gate,
        torch.get_num_threads(),
    )
    return out
