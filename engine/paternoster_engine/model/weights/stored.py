"""Tensors in files, read part by part, so that no weight is in memory twice."""

import math
from collections.abc import Sequence
from typing import Protocol

import torch

PIECE_BYTES = 2**22
"""Of float32 numbers that are read at once."""

Cut = tuple[slice, ...]
"""A range of each dimension, the first one first; all of those that are not said."""


class Stored(Protocol):
    """A tensor that is read where it is cut; a tensor in memory is one, too."""

    @property
    def shape(self) -> Sequence[int]: ...

    def __getitem__(self, cut: Cut, /) -> torch.Tensor: ...


def whole_cut(cut: Cut, shape: Sequence[int]) -> list[tuple[int, int]]:
    """First and one beyond the last of each dimension."""
    said = (*cut, *[slice(None)] * (len(shape) - len(cut)))
    return [part.indices(length)[:2] for part, length in zip(said, shape, strict=True)]


def read_into(out: torch.Tensor, stored: Stored) -> None:
    """Copy ``stored`` into ``out``, of the same shape and of any type and device, a few rows at a time."""
    row_bytes = torch.float32.itemsize * math.prod(stored.shape[1:])
    rows = max(1, PIECE_BYTES // max(1, row_bytes))
    for first in range(0, len(out), rows):
        out[first : first + rows].copy_(stored[(slice(first, first + rows),)])


class Part:
    """Of the dimension ``dim``, ``length`` from ``first`` on; zeros beyond its end."""

    def __init__(self, whole: Stored, dim: int, first: int, length: int) -> None:
        self._whole, self._dim, self._first = whole, dim, first
        self.shape = (*whole.shape[:dim], length, *whole.shape[dim + 1 :])

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        bounds = whole_cut(cut, self.shape)
        start, stop = bounds[self._dim]
        end = self._whole.shape[self._dim]
        bounds[self._dim] = min(self._first + start, end), min(self._first + stop, end)
        found = self._whole[tuple(slice(*bound) for bound in bounds)]
        missing = max(0, stop - start) - found.shape[self._dim]
        if not missing:
            return found
        padding = list(found.shape)
        padding[self._dim] = missing
        return torch.cat((found, found.new_zeros(padding)), self._dim)
