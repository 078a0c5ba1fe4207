"""The tensors of one safetensors file.

The format: https://github.com/huggingface/safetensors#format. The library checks the header, the bounds of every tensor
in it among them; its own tensors are not read, as they keep all of the file mapped.
"""

import json
import math
import os
import struct
import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.weights.mapped_file import MappedFile
from paternoster_engine.model.weights.stored import Cut, whole_cut

FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
TYPES = {**FLOATS, "U8": torch.uint8, "I32": torch.int32}
"""What is read; bytes and words are what numbers of few bits are packed into."""

LONGEST_HEADER = 100_000_000
"""Bytes of the longest header that the library reads."""


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A :class:`LazyTensor` of one file."""

    file: "MappedFile | CopiedFile"
    kind: str
    """Kind, in the file's own words."""
    shape: tuple[int, ...]
    start: int
    """Its first byte in the file."""

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        dtype = TYPES[self.kind]
        # As bytes, which numpy has for every type.
        *leading, last = self.shape or (1,)
        data = self.file.read_bytes(self.start, math.prod(self.shape) * dtype.itemsize)
        bounds = whole_cut(cut, self.shape) or [(0, 1)]
        bounds[-1] = bounds[-1][0] * dtype.itemsize, bounds[-1][1] * dtype.itemsize
        view = data.reshape(*leading, last * dtype.itemsize)[tuple(slice(*bound) for bound in bounds)]
        # An array of no elements has strides of 0, of which there is no view of another type.
        found = torch.from_numpy(np.array(view)) if view.size else torch.empty(view.shape, dtype=torch.uint8)
        found = found.view(dtype)
        self.file.has_read(found.nbytes)
        return found if self.shape else found[0]


class CopiedFile:
    """A file that others may shorten while it is read, which would end a process that has mapped it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def read_bytes(self, start: int, size: int) -> np.ndarray:
        """A copy of bytes in the file; raises :class:`ModelError` where it has become shorter or cannot be read."""
        data = np.empty(size, np.uint8)
        rest = memoryview(data.data)
        try:
            while rest:
                count = os.preadv(self._descriptor, [rest], start + size - len(rest))
                if count == 0:
                    raise ModelError(f"{self._path} became shorter while it was read")
                rest = rest[count:]
        except OSError as error:
            raise ModelError(f"{self._path} cannot be read: {error.strerror}") from error
        return data

    def has_read(self, size: int) -> None:
        """Nothing is to be given back."""

    def copy_header(self) -> IO[bytes]:
        """Copy the header to a file of this size that has nothing else, which takes no space."""
        size = os.fstat(self._descriptor).st_size
        copy = os.fdopen(os.memfd_create("safetensors"), "wb")
        begin = self.read_bytes(0, min(size, 8)).tobytes()
        length = int.from_bytes(begin, "little")
        copy.write(begin + self.read_bytes(8, max(0, min(size - 8, length, LONGEST_HEADER))).tobytes())
        copy.truncate(size)
        return copy


def read_safetensors(path: Path, *, mapped: bool = True) -> Mapping[str, FileTensor]:
    """Map the file and read its header; raises :class:`ModelError`.

    ``mapped``: False for a file that others may change, whose tensors are copied when they are read.
    """
    try:
        if path.stat().st_size == 0:
            raise ValueError("it has 0 bytes")
        copied = None if mapped else CopiedFile(path)
        with nullcontext() if copied is None else copied.copy_header() as copy:
            checked = path if copy is None else Path(f"/proc/self/fd/{copy.fileno()}")
            with safe_open(checked, framework="pt"):
                whole = MappedFile(checked)
            (length,) = struct.unpack("<Q", bytes(whole.data[:8]))
            header = json.loads(bytes(whole.data[8 : 8 + length]))
        file = copied or whole
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is not a readable safetensors file: {error}") from error
    header.pop("__metadata__", None)
    return {
        name: FileTensor(file, entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
        for name, entry in header.items()
    }
