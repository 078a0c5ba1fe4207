"""Adapters of the rows of a step, and the matrices of these."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch


@dataclass(frozen=True, slots=True)
class LoraMatrix:
    """Adapter (LoRA, arXiv 2106.09685) of one matrix of a model: it adds ``scale * (x @ down.T) @ up``."""

    down: torch.Tensor
    """``[rank, inputs]``."""
    up: torch.Tensor
    """``[rank, outputs]``."""
    scale: float

    @property
    def nbytes(self) -> int:
        return self.down.nbytes + self.up.nbytes


class LoraMatrices:
    """Matrices of one adapter, for each matrix of a model that may have one: contiguous, of one dtype and device."""

    def __init__(self, matrices: Sequence[LoraMatrix | None]) -> None:
        """None for a matrix that stays as it is."""
        self.matrices = matrices
        self.nbytes = sum(matrix.nbytes for matrix in matrices if matrix is not None)
        rows = [(0, 0, 0, 0) if matrix is None else _describe_matrix(matrix) for matrix in matrices]
        self.table = torch.tensor(rows, dtype=torch.int64)
        """``[matrices, 4]`` on the host: addresses of down and up, rank, bits of the scale in double precision."""


def _describe_matrix(matrix: LoraMatrix) -> tuple[int, ...]:
    (scale,) = struct.unpack("<q", struct.pack("<d", matrix.scale))
    return matrix.down.data_ptr(), matrix.up.data_ptr(), len(matrix.down), scale


class LoraBatch:
    """Rows of one step in segments, each with its own adapter, or with none."""

    def __init__(self, segments: Sequence[tuple[LoraMatrices | None, int]]) -> None:
        """``segments``: adapters and numbers of rows, in order; one of them at least has an adapter."""
        self.adapters = [adapter for adapter, _ in segments]
        self.starts = [0, *accumulate(count for _, count in segments)]
        """First row of each segment, and the number of rows at the end."""
        nothing = next(torch.zeros_like(adapter.table) for adapter in self.adapters if adapter is not None)
        tables = [nothing if adapter is None else adapter.table for adapter in self.adapters]
        self.table = torch.stack(tables, 1)
        """``[matrices, segments, 4]`` on the host."""
        self.native_starts = torch.tensor(self.starts, dtype=torch.int64)
