"""Matrices in blocks of few bits: the formats of GGUF files and of others, and what hands them over row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

STRIP = 16
"""Outputs whose blocks lie side by side where they are multiplied with."""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """What a block is. Fields of GGUF's are those of ggml's structures (https://github.com/ggml-org/ggml), in order."""

    name: str
    number: int
    """ggml's, below 1000."""
    inputs: int
    """Numbers of a block."""
    fields: tuple[tuple[int, int], ...]
    """Bytes of an item, and items."""

    @property
    def bytes(self) -> int:
        return sum(size * count for size, count in self.fields)

    def row_bytes(self, inputs: int) -> int:
        """Bytes of a row of ``inputs`` numbers; raises ``ValueError`` where they are no whole blocks."""
        if inputs % self.inputs:
            raise ValueError(f"inputs is {inputs}: must be a multiple of {self.inputs} in {self.name}")
        return inputs // self.inputs * self.bytes


_HALF, _WORD = 2, 4
_FORMATS = (
    BlockFormat("Q4_0", 2, 32, ((_HALF, 1), (_WORD, 4))),
    BlockFormat("Q4_1", 3, 32, ((_HALF, 1), (_HALF, 1), (_WORD, 4))),
    BlockFormat("Q5_0", 6, 32, ((_HALF, 1), (_WORD, 1), (_WORD, 4))),
    BlockFormat("Q5_1", 7, 32, ((_HALF, 1), (_HALF, 1), (_WORD, 1), (_WORD, 4))),
    BlockFormat("Q8_0", 8, 32, ((_HALF, 1), (_WORD, 8))),
    BlockFormat("Q4_K", 12, 256, ((_HALF, 1), (_HALF, 1), (_WORD, 3), (_WORD, 32))),
    BlockFormat("Q5_K", 13, 256, ((_HALF, 1), (_HALF, 1), (_WORD, 3), (_WORD, 8), (_WORD, 32))),
    BlockFormat("Q6_K", 14, 256, ((_WORD, 32), (_WORD, 16), (_WORD, 4), (_HALF, 1))),
    BlockFormat("MXFP4", 39, 32, ((1, 1), (_WORD, 4))),
    # Of safetensors files: scale, zero point and numbers as in Q4_0; a scale in float32 and numbers.
    BlockFormat("INT4_F16", 1000, 32, ((_HALF, 1), (1, 1), (_WORD, 4))),
    BlockFormat("INT4_BF16", 1001, 32, ((_HALF, 1), (1, 1), (_WORD, 4))),
    BlockFormat("FP8", 1002, 32, ((_WORD, 1), (_WORD, 8))),
)
FORMATS = {found.name: found for found in _FORMATS}
"""Formats with products, by name."""
GGUF_FORMATS = tuple(found.name for found in _FORMATS if found.number < 1000)
BF16 = 30
"""ggml's number of bfloat16."""


class Rows(Protocol):
    """A matrix ``[out, in]`` that is read a few rows at a time."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def format(self) -> BlockFormat | None:
        """None for numbers."""
        ...

    def read_rows(self, first: int, last: int) -> torch.Tensor:
        """Blocks, uint8 ``[last - first, bytes of a row]``, or numbers ``[last - first, in]``."""
        ...


@dataclass(frozen=True, slots=True)
class Strips:
    """Matrices below each other, kept in their blocks: strips of 16 outputs, each in a format of its own.

    A strip ``[blocks, items, 16]`` has the same item of 16 outputs side by side, for each item of a block's fields.
    """

    data: torch.Tensor
    """uint8: all strips, and after them nothing."""
    table: torch.Tensor
    """int64 ``[out / 16, 2]``: where in ``data`` a strip begins, and its format's number."""
    in_features: int

    @property
    def out_features(self) -> int:
        return len(self.table) * STRIP


def fits_strips(matrices: Sequence[Rows]) -> bool:
    """Whether matrices below each other have whole strips, in whole tiles of 32 outputs and 32 inputs."""
    outputs, inputs = [matrix.shape[0] for matrix in matrices], matrices[0].shape[1]
    return all(rows % STRIP == 0 for rows in outputs) and sum(outputs) % (2 * STRIP) == 0 and inputs % 32 == 0


def strip_bytes(found: BlockFormat | None, inputs: int) -> int:
    """Bytes of a strip of 16 outputs."""
    return STRIP * (2 * inputs if found is None else found.row_bytes(inputs))


def interleave_rows(found: BlockFormat, rows: torch.Tensor) -> torch.Tensor:
    """Blocks uint8 ``[16 * n, bytes of a row]`` as strips ``[n, 16 * bytes of a row]``."""
    blocks = rows.reshape(-1, STRIP, rows.shape[1] // found.bytes, found.bytes)
    strips = rows.new_empty(len(blocks), blocks.shape[2], STRIP * found.bytes)
    at = 0
    for size, count in found.fields:
        items = blocks[..., at : at + size * count].unflatten(-1, (count, size)).permute(0, 2, 3, 1, 4)
        strips[..., STRIP * at : STRIP * (at + size * count)].view(items.shape).copy_(items)
        at += size * count
    return strips.flatten(1)
