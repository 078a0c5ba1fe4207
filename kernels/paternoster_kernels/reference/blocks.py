"""What blocks of few bits say, and products with matrices of them; here made numbers once."""

from collections.abc import Callable, Sequence

import torch

from paternoster_kernels.blocks import BlockFormat, Rows
from paternoster_kernels.reference.matmul import packed_gated_matmul, packed_matmul

FLOATS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""Values of MXFP4's four bits: sign, two of exponent, one of mantissa."""


def dequantize_blocks(found: BlockFormat, rows: torch.Tensor) -> torch.Tensor:
    """Float32 ``[out, in]`` of blocks uint8 ``[out, bytes of a row]``, as gguf's own ``dequantize`` has them."""
    blocks = rows.unflatten(1, (-1, found.bytes))
    fields = blocks.split([size * count for size, count in found.fields], -1)
    return _READERS[found.name](*fields).reshape(len(rows), -1)


def pack_strips(matrices: Sequence[Rows], gated: bool = False) -> torch.Tensor:
    """Matrices ``[out, in]`` below each other as :func:`strip_matmul` reads them; here bfloat16 ``[out, in]``.

    ``gated``: for :func:`strip_gated_matmul`; the first half of all outputs opens for the other.
    """
    found = []
    for matrix in matrices:
        rows = matrix.read_rows(0, matrix.shape[0])
        found.append((rows if matrix.format is None else dequantize_blocks(matrix.format, rows)).to(torch.bfloat16))
    return torch.cat(found)


def strip_matmul(x: torch.Tensor, strips: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``x @ weight.T + bias`` for ``x [rows, in]``, ``bias [out]``; ``[rows, out]``."""
    return packed_matmul(x, strips, bias)


def strip_gated_matmul(
    x: torch.Tensor, strips: torch.Tensor, bias: torch.Tensor | None = None, *, gelu: bool = False
) -> torch.Tensor:
    """``silu(gate) * up``, or ``gelu``'s, where ``x @ weight.T + bias`` is both side by side; ``[rows, out / 2]``."""
    return packed_gated_matmul(x, strips, bias, gelu=gelu)


def strip_rows(strips: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """bfloat16 ``[*rows.shape, in]``: those of the matrix, which is not gated."""
    return strips[rows]


def _read_halves(field: torch.Tensor) -> torch.Tensor:
    return field.contiguous().view(torch.float16).float()


def _read_nibbles(field: torch.Tensor, width: int) -> torch.Tensor:
    """Read the low halves of each ``width`` bytes, then the high ones."""
    parts = field.unflatten(-1, (-1, width))
    return torch.cat((parts & 15, parts >> 4), -1).flatten(-2)


def _read_bits(field: torch.Tensor) -> torch.Tensor:
    """32 bits, the lowest of the first byte first."""
    return (field.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8) & 1).flatten(-2)


def _read_fives(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return _read_nibbles(low, 16) + 16 * _read_bits(high)


def _read_sixes(scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """8 scales and 8 least numbers of six bits each, in 12 bytes."""
    first, second, rest = scales.split(4, -1)
    scale = torch.cat((first & 63, rest & 15 | first >> 6 << 4), -1)
    least = torch.cat((second & 63, rest >> 4 | second >> 6 << 4), -1)
    return scale.float(), least.float()


def _scale_parts(scale: torch.Tensor, least: torch.Tensor, scales: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Eight parts of 32 numbers with scales of their own."""
    sixes, leasts = _read_sixes(scales)
    found = numbers.unflatten(-1, (8, 32)).float() * (_read_halves(scale) * sixes).unsqueeze(-1)
    parts: torch.Tensor = (found - (_read_halves(least) * leasts).unsqueeze(-1)).flatten(-2)
    return parts


def _q5_k(
    scale: torch.Tensor, least: torch.Tensor, scales: torch.Tensor, high: torch.Tensor, low: torch.Tensor
) -> torch.Tensor:
    fifths = (high.unsqueeze(-2) >> torch.arange(8, dtype=torch.uint8)[:, None] & 1).flatten(-2)
    return _scale_parts(scale, least, scales, _read_nibbles(low, 32) + 16 * fifths)


def _q6_k(low: torch.Tensor, high: torch.Tensor, scales: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    highs = high.unflatten(-1, (2, 1, 32)) >> torch.arange(0, 8, 2, dtype=torch.uint8)[:, None] & 3
    numbers = (_read_nibbles(low, 64) + 16 * highs.flatten(-3)).float() - 32
    scaled = _read_halves(scale) * scales.contiguous().view(torch.int8).float()
    parts: torch.Tensor = (numbers.unflatten(-1, (16, 16)) * scaled.unsqueeze(-1)).flatten(-2)
    return parts


def _dequantize_mxfp4(exponent: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    return torch.ldexp(torch.tensor(FLOATS)[_read_nibbles(low, 16).int()], exponent.int() - 127)


def _dequantize_int4(scale: torch.Tensor, zero: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    return (_read_nibbles(low, 16).float() - zero.float()) * scale


_READERS: dict[str, Callable[..., torch.Tensor]] = {
    "Q4_0": lambda scale, low: (_read_nibbles(low, 16).float() - 8) * _read_halves(scale),
    "Q4_1": lambda scale, least, low: _read_nibbles(low, 16).float() * _read_halves(scale) + _read_halves(least),
    "Q5_0": lambda scale, high, low: (_read_fives(low, high).float() - 16) * _read_halves(scale),
    "Q5_1": lambda scale, least, high, low: _read_fives(low, high).float() * _read_halves(scale) + _read_halves(least),
    "Q8_0": lambda scale, numbers: numbers.contiguous().view(torch.int8).float() * _read_halves(scale),
    "Q4_K": lambda scale, least, scales, low: _scale_parts(scale, least, scales, _read_nibbles(low, 32)),
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "MXFP4": _dequantize_mxfp4,
    "INT4_F16": lambda scale, zero, low: _dequantize_int4(_read_halves(scale), zero, low),
    "INT4_BF16": lambda scale, zero, low: _dequantize_int4(scale.contiguous().view(torch.bfloat16).float(), zero, low),
    "FP8": lambda scale, numbers: (
        numbers.contiguous().view(torch.float8_e4m3fn).float() * scale.contiguous().view(torch.float32)
    ),
}
"""Readers by a format's name: numbers ``[out, blocks, inputs of a block]`` of fields ``[out, blocks, bytes]``."""
