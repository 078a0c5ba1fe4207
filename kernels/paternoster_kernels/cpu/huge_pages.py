"""Memory in huge pages, where the system gives them on request: fewer address translations, faster reads."""

import contextlib
import ctypes
import math
import mmap
import threading

import torch

PAGE_BYTES = 2**21
MADV_POPULATE_WRITE = 23
"""Advice of Linux from 5.14 on; the module ``mmap`` neither has it nor lets other threads run."""
PRESENT_BYTES = 2 * PAGE_BYTES
"""What is made present at once."""
CHUNK_BYTES = 2**26
"""What an arena asks the system for at once."""
ALIGNMENT = 64
"""Bytes that every tensor of an arena begins at a multiple of: a cache line."""


def zeros(shape: tuple[int, ...], dtype: torch.dtype, *, wait: bool = True) -> torch.Tensor:
    """A CPU tensor of zeros, all of it present, so that nothing is left to be given out while requests wait.

    Without ``wait`` a thread has that done where it can; what is used before is there when it is used.
    """
    size = math.prod(shape) * dtype.itemsize
    memory = _allocate_pages(size)[:size]
    first = memory[:PRESENT_BYTES]
    if not _make_present(first):
        memory.zero_()
    elif wait:
        _make_present(memory)
    else:
        threading.Thread(target=_make_present, args=(memory,), name="zeros", daemon=True).start()
    return memory.view(dtype).view(shape)


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
            self._free = _allocate_pages(max(size, CHUNK_BYTES))
        place, self._free = self._free[:size], self._free[-(-size // ALIGNMENT) * ALIGNMENT :]
        return place


# A tensor made under inference mode could not be written outside it, and an arena outlives its first user.
@torch.inference_mode(False)
def _allocate_pages(size: int) -> torch.Tensor:
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


def _make_present(memory: torch.Tensor) -> bool:
    """Have the system give pages, which it zeroes, other threads running on meanwhile; False where it does not."""
    if not hasattr(mmap, "MADV_HUGEPAGE") or not len(memory):
        return False
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    end = -(-len(memory) // mmap.PAGESIZE) * mmap.PAGESIZE
    # A few pages at a time: meanwhile no other thread gets new memory from the system.
    parts = ((first, min(PRESENT_BYTES, end - first)) for first in range(0, end, PRESENT_BYTES))
    return all(madvise(memory.data_ptr() + first, size, MADV_POPULATE_WRITE) == 0 for first, size in parts)


WEIGHTS = Arena()
"""Where weights lie."""
