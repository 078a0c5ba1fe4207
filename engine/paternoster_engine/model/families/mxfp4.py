"""Weights in MXFP4 (OCP Microscaling Formats 1.0, section 5.3), as numbers and as GGUF's blocks."""

import torch

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.weights.stored import Cut
from paternoster_kernels.blocks import FORMATS

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""Values of the four bits of a number: sign, two of exponent, one of mantissa."""
BIAS = 127
"""Bias of a scale, which is an exponent of 2."""
HALF_BLOCK = 16
"""Bytes of 32 numbers that share a scale."""


def from_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``[outputs, 32 * n]`` bfloat16, exact, of ``blocks [outputs, n, 16]`` and ``scales [outputs, n]``, both uint8.

    The lower four bits of a byte come first. Raises :class:`ModelError` for other types and shapes.
    """
    kinds = (blocks.dtype, scales.dtype)
    if kinds != (torch.uint8, torch.uint8) or blocks.shape != (*scales.shape, HALF_BLOCK) or scales.dim() != 2:
        shapes = f"{list(blocks.shape)} {blocks.dtype} and {list(scales.shape)} {scales.dtype}"
        raise ModelError(f"blocks and scales in MXFP4 are {shapes}: must be [outputs, n, 16] and [outputs, n] uint8")
    values = torch.tensor(VALUES, dtype=torch.float32, device=blocks.device)
    numbers = torch.stack((values[(blocks & 15).int()], values[(blocks >> 4).int()]), -1).flatten(-2)
    return torch.ldexp(numbers, (scales.int() - BIAS).unsqueeze(-1)).flatten(1).to(torch.bfloat16)


class Mxfp4:
    """A :class:`~..weights.stored.InBlocks` of what :func:`from_mxfp4` takes."""

    format = FORMATS["MXFP4"]

    def __init__(self, blocks: torch.Tensor, scales: torch.Tensor) -> None:
        """Raises as :func:`from_mxfp4`."""
        self._blocks, self._scales = blocks, scales
        self.shape = tuple(from_mxfp4(blocks.to("meta"), scales.to("meta")).shape)

    def read_blocks(self, first: int, last: int) -> torch.Tensor:
        """The exponent, and bytes of inputs i and i + 16; the files have i and i + 1 in a byte."""
        stored = self._blocks[first:last]
        numbers = torch.stack((stored & 15, stored >> 4), -1).flatten(-2)
        low, high = numbers.split(HALF_BLOCK, -1)
        return torch.cat((self._scales[first:last].unsqueeze(-1), low | high << 4), -1).flatten(1)

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        rows, *columns = cut or (slice(None),)
        return from_mxfp4(self._blocks[rows], self._scales[rows])[(slice(None), *columns)]
