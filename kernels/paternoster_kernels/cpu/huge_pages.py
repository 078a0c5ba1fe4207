"""Memory in huge pages, where the system gives them on request: fewer address translations, faster reads."""

import contextlib
import math
import mmap

import torch

PAGE_BYTES = 2**21
CHUNK_BYTES = 2**26
"""What an arena asks the system for at once."""
ALIGNMENT = 64
"""Bytes that every tensor of an arena begins at a multiple of: a cache line."""


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A CPU tensor of zeros, all of it present, so that nothing is left to be given out while requests wait."""
    count = math.prod(shape)
    return _pages(count * dtype.itemsize)[: count * dtype.itemsize].view(dtype).zero_().view(shape)


class Arena:
    """Hands out small tensors side by side, so that together they fill huge pages.

    Memory goes back to the system when all tensors of its chunk are gone.
    """

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor``, contiguous and in huge pages."""
        place = self.empty(tensor.numel() * tensor.element_size())
        return place.view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def empty(self, size: int) -> torch.Tensor:
        """uint8 ``[size]``."""
        if size > len(self._free):
            self._free = _pages(max(size, CHUNK_BYTES))
        place, self._free = self._free[:size], self._free[-(-size // ALIGNMENT) * ALIGNMENT :]
        return place


def _pages(size: int) -> torch.Tensor:
    """At least ``size`` bytes, from the beginning of a huge page on; the tensor keeps them alive."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    # Private, as shared memory follows other rules.
    memory = mmap.mmap(-1, size + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel may be built without them; the memory is as good, only slower.
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    found = torch.frombuffer(memory, dtype=torch.uint8)
    return found[-found.data_ptr() % PAGE_BYTES :]


WEIGHTS = Arena()
"""Where weights lie."""
