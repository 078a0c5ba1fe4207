"""The tensors of one safetensors file.

The format: https://github.com/huggingface/safetensors#format. The library checks the header, the bounds of every tensor
in it among them; its own tensors are not read, as they keep all of the file mapped.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A :class:`LazyTensor` of one file."""

    file: MappedFile
    kind: str
    """Kind, in the file's own words."""
    shape: tuple[int, ...]
    start: int
    """Its first byte in the file."""

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        dtype = TYPES[self.kind]
        # As bytes, which numpy has for every type.
        *leading, last = self.shape or (1,)
        data = self.file.data[self.start :][: math.prod(self.shape) * dtype.itemsize]
        bounds = whole_cut(cut, self.shape) or [(0, 1)]
        bounds[-1] = bounds[-1][0] * dtype.itemsize, bounds[-1][1] * dtype.itemsize
        view = data.reshape(*leading, last * dtype.itemsize)[tuple(slice(*bound) for bound in bounds)]
        # An array of no elements has strides of 0, of which there is no view of another type.
        found = torch.from_numpy(np.array(view)) if view.size else torch.empty(view.shape, dtype=torch.uint8)
        found = found.view(dtype)
        self.file.has_read(found.nbytes)
        return found if self.shape else found[0]


def read_safetensors(path: Path) -> Mapping[str, FileTensor]:
    """Map the file and read its header; raises :class:`ModelError`."""
    try:
        if path.stat().st_size == 0:
            raise ValueError("it has 0 bytes")
        with safe_open(path, framework="pt"):
            file = MappedFile(path)
            (length,) = struct.unpack("<Q", bytes(file.data[:8]))
            header = json.loads(bytes(file.data[8 : 8 + length]))
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is not a readable safetensors file: {error}") from error
    header.pop("__metadata__", None)
    return {
        name: FileTensor(file, entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
        for name, entry in header.items()
    }
