"""Products with bfloat16 weights."""

import torch

from paternoster_kernels import reference
from paternoster_kernels.cpu.elementwise import Gate
from paternoster_kernels.cpu.huge_pages import WEIGHTS
from paternoster_kernels.cpu.library import require_library

ROWS, INPUTS, OUTPUTS = 16, 32, 32
"""Rows of a tile, and what inputs and outputs must be whole multiples of."""


def pack_weight(weight: torch.Tensor, gated: bool = False) -> torch.Tensor:
    """``weight [out, in]`` in tiles, ``[out / 16, in / 32, 16, 16, 2]``; as it is where it has no whole ones.

    ``gated``: a tile of the first half and one of the second in turns.
    """
    outputs, inputs = weight.shape
    if weight.dtype != torch.bfloat16 or outputs % OUTPUTS or inputs % INPUTS:
        return weight
    tiles = weight.view(outputs // ROWS, ROWS, inputs // INPUTS, ROWS, 2).permute(0, 2, 3, 1, 4)
    if gated:
        tiles = tiles.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)
    return WEIGHTS.copy(tiles)


def packed_matmul(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Product with ``packed`` from :func:`pack_weight`. A row's result does not depend on the other rows."""
    return (
        _multiply_packed(x, packed, bias, Gate.NONE) if packed.dim() == 5 else reference.packed_matmul(x, packed, bias)
    )


def packed_gated_matmul(
    x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None, *, gelu: bool = False
) -> torch.Tensor:
    """Gated product with ``packed`` from :func:`pack_weight` with ``gated``."""
    if packed.dim() != 5:
        return reference.packed_gated_matmul(x, packed, bias, gelu=gelu)
    return _multiply_packed(x, packed, bias, Gate.GELU if gelu else Gate.SILU)


def _multiply_packed(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, gate: Gate) -> torch.Tensor:
    x = x.contiguous()
    rows, inputs = x.shape
    outputs = len(packed) * ROWS
    out = x.new_empty(rows, outputs // 2 if gate else outputs)
    require_library().packed_matmul(
        out.data_ptr(),
        x.data_ptr(),
        packed.data_ptr(),
        None,
        None if bias is None else bias.data_ptr(),
        rows,
        outputs,
        inputs,
        gate,
        torch.get_num_threads(),
    )
    return out
