"""A file of weights in the address space: read where it is touched, and let go of again."""

import mmap
from pathlib import Path

import numpy as np

RELEASE_BYTES = 2**22
"""What may be read before the pages are given back: as long as they are mapped they count as the process's memory."""


class MappedFile:
    """Read-only. A reader of :attr:`data` reports how much it read to :meth:`has_read`."""

    def __init__(self, path: Path) -> None:
        """Raises ``OSError``, and ``ValueError`` for an empty file."""
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.data = np.frombuffer(self._map, np.uint8)
        """All of the file's bytes."""
        self._read = 0

    def read_bytes(self, start: int, size: int) -> np.ndarray:
        """A view of bytes in the file."""
        return self.data[start : start + size]

    def has_read(self, size: int) -> None:
        """``size`` bytes more were read, and what was made of them is elsewhere."""
        self._read += size
        if self._read >= RELEASE_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            # They stay in the page cache: other ranks and later processes find them there.
            self._map.madvise(mmap.MADV_DONTNEED)
            self._read = 0
