"""Products with int8 weights."""

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.huge_pages import WEIGHTS
from paternoster_kernels.cpu.library import require_library

ROWS, INPUTS, OUTPUTS = 16, 64, 32
"""Rows of a tile, and what inputs and outputs must be whole multiples of."""


def pack_int8_weight(weight: torch.Tensor) -> torch.Tensor:
    """``weight [out, in]`` int8 in tiles, ``[out / 16, in / 64, 16, 16, 4]``; as it is where it has no whole ones."""
    outputs, inputs = weight.shape
    if outputs % OUTPUTS or inputs % INPUTS:
        return reference.pack_int8_weight(weight)
    tiles = weight.view(outputs // ROWS, ROWS, inputs // INPUTS, ROWS, 4)
    return WEIGHTS.copy(tiles.permute(0, 2, 3, 1, 4))


def int8_matmul(x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Product with int8 weights; ``packed`` from :func:`pack_int8_weight`, ``scales`` float32 and contiguous."""
    if packed.dim() == 2:
        return reference.int8_matmul(x, packed, scales)
    if x.dtype != torch.bfloat16 or not x.is_contiguous():
        return int8_matmul(x.to(torch.bfloat16).contiguous(), packed, scales).to(x.dtype)
    rows, inputs = x.shape
    out = x.new_empty(rows, len(scales))
    quantized = torch.empty(-(-rows // ROWS) * ROWS, inputs, dtype=torch.int8)
    row_scales = torch.empty(rows)
    require_library().int8_matmul(
        out.data_ptr(),
        x.data_ptr(),
        packed.data_ptr(),
        scales.data_ptr(),
        quantized.data_ptr(),
        row_scales.data_ptr(),
        rows,
        len(scales),
        inputs,
        torch.get_num_threads(),
    )
    return out
