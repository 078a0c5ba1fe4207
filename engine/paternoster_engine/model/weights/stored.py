"""Tensors in files, read part by part, so that no weight is in memory twice."""

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch

from paternoster_kernels.blocks import BlockFormat

PIECE_BYTES = 2**22
"""Bytes of float32 numbers that are read at once."""

Cut = tuple[slice, ...]
"""A range of each dimension, the first one first; the whole of those that are absent."""


class LazyTensor(Protocol):
    """A tensor that is read where it is cut; a tensor in memory is one, too."""

    @property
    def shape(self) -> Sequence[int]: ...

    def __getitem__(self, cut: Cut, /) -> torch.Tensor: ...


@runtime_checkable
class InBlocks(LazyTensor, Protocol):
    """A matrix that may be stored in blocks of few bits, and is then to be had as they are."""

    @property
    def format(self) -> BlockFormat | None:
        """None where it is not, or where its parts are no whole blocks."""
        ...

    def read_blocks(self, first: int, last: int) -> torch.Tensor:
        """Read rows ``first`` to ``last``, uint8 ``[last - first, bytes of a row]``."""
        ...


def block_format(stored: LazyTensor) -> BlockFormat | None:
    """What ``stored`` is stored in; None for numbers."""
    return stored.format if isinstance(stored, InBlocks) else None


class StoredRows:
    """A stored matrix row by row: its blocks, or its numbers where it has none."""

    def __init__(self, stored: LazyTensor) -> None:
        self._stored = stored
        self.shape = stored.shape
        self.format = block_format(stored)

    def read_rows(self, first: int, last: int) -> torch.Tensor:
        """Read rows, see :class:`paternoster_kernels.blocks.Rows`."""
        if self.format is not None and isinstance(self._stored, InBlocks):
            return self._stored.read_blocks(first, last)
        return self._stored[(slice(first, last),)]


def whole_cut(cut: Cut, shape: Sequence[int]) -> list[tuple[int, int]]:
    """First and one beyond the last of each dimension."""
    ranges = (*cut, *[slice(None)] * (len(shape) - len(cut)))
    return [part.indices(length)[:2] for part, length in zip(ranges, shape, strict=True)]


def read_into(out: torch.Tensor, stored: LazyTensor) -> None:
    """Copy ``stored`` into ``out``, of the same shape and of any type and device, a few rows at a time."""
    for rows in row_pieces(stored.shape):
        out[rows].copy_(stored[(rows,)])


def row_pieces(shape: Sequence[int]) -> Iterator[slice]:
    """Slices of a tensor's rows, as many at once as are :data:`PIECE_BYTES`."""
    rows = max(1, PIECE_BYTES // max(1, torch.float32.itemsize * math.prod(shape[1:])))
    return (slice(first, min(first + rows, shape[0])) for first in range(0, shape[0], rows))


class StackedTensors:
    """Tensors of as many columns below each other, read as numbers of ``dtype`` on ``device``."""

    def __init__(self, parts: Sequence[LazyTensor], dtype: torch.dtype, device: torch.device) -> None:
        self._parts, self._dtype = parts, dtype
        self.shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        self.device = device

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        (first, last), *others = whole_cut(cut, self.shape)
        columns = [slice(*bounds) for bounds in others]
        found, begin = [], 0
        for part in self._parts:
            rows = slice(max(0, first - begin), max(0, min(part.shape[0], last - begin)))
            if rows.start < rows.stop:
                found.append(part[(rows, *columns)].to(self.device, self._dtype))
            begin += part.shape[0]
        return found[0] if len(found) == 1 else torch.cat(found)


class TensorSlice:
    """Slice of the dimension ``dim``, ``length`` from ``first`` on; zeros beyond its end."""

    def __init__(self, whole: LazyTensor, dim: int, first: int, length: int) -> None:
        self._whole, self._dim, self._first = whole, dim, first
        self.shape = (*whole.shape[:dim], length, *whole.shape[dim + 1 :])

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        bounds = whole_cut(cut, self.shape)
        start, stop = bounds[self._dim]
        end = self._whole.shape[self._dim]
        bounds[self._dim] = min(self._first + start, end), min(self._first + stop, end)
        found = self._whole[tuple(slice(*bound) for bound in bounds)]
        return _pad_zeros(found, self._dim, max(0, stop - start))

    @property
    def format(self) -> BlockFormat | None:
        """The whole's, unless columns cut its blocks apart."""
        found = block_format(self._whole)
        if found is None or self._dim == 0:
            return found
        last = self._first + self.shape[1]
        whole = self._first % found.inputs == 0 and last % found.inputs == 0 and last <= self._whole.shape[1]
        return found if whole else None

    def read_blocks(self, first: int, last: int) -> torch.Tensor:
        """Read rows, see :class:`InBlocks`; beyond the end of the whole they are zeros, in every format."""
        found = self.format
        assert found is not None
        assert isinstance(self._whole, InBlocks)
        if self._dim == 1:
            bounds = (found.row_bytes(self._first), found.row_bytes(self._first + self.shape[1]))
            return self._whole.read_blocks(first, last)[:, slice(*bounds)]
        end = self._whole.shape[0]
        rows = self._whole.read_blocks(min(self._first + first, end), min(self._first + last, end))
        return _pad_zeros(rows, 0, last - first)


def _pad_zeros(found: torch.Tensor, dim: int, length: int) -> torch.Tensor:
    """With zeros up to ``length``."""
    missing = length - found.shape[dim]
    if not missing:
        return found
    padding = list(found.shape)
    padding[dim] = missing
    return torch.cat((found, found.new_zeros(padding)), dim)
