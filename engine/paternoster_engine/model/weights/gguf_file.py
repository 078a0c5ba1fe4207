"""The fields and tensors of a GGUF file, every number in it bounded by the file's own size before it is believed.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import shorten_value
from paternoster_engine.model.weights.mapped_file import MappedFile

LONGEST_HEAD = 64 * 2**20
"""Bytes before the tensors: a vocabulary of 260 000 tokens and as many merges takes 15 MiB."""
MOST_FIELDS = MOST_TENSORS = 2**16
MOST_STRINGS = 2**22
"""In one array: sixteen times the largest vocabulary there is."""
MOST_DIMENSIONS = 4
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
LARGEST_ALIGNMENT = 2**16
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
"""Type of a value -> numpy's name for it."""
_ITEMS = {GGMLQuantizationType.F32: "<f4", GGMLQuantizationType.F16: "<f2"}
"""What is not stored in blocks of bytes."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as the file has it."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    """Elements, the fastest dimension last."""
    data: np.ndarray
    """A view of the file: elements, or for a quantised tensor the bytes of its blocks."""

    def select_expert(self, number: int) -> "StoredTensor":
        """One of those that are stored along the first dimension; one without a shape where there is none."""
        if number >= self.shape[0]:
            return StoredTensor(self.kind, (), self.data[:0])
        return StoredTensor(self.kind, self.shape[1:], self.data[number])


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a file says; arrays of numbers are views of it."""

    fields: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    file: MappedFile


def read_gguf(path: Path) -> GgufFile:
    """Map the file and read its head; raises :class:`ModelError` naming what is wrong."""
    try:
        return _read_gguf(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except ModelError as error:
        raise ModelError(f"{path} is not a readable GGUF file: {error}") from error


def _read_gguf(path: Path) -> GgufFile:
    if not path.is_file():
        raise ModelError("it is no regular file")
    size = path.stat().st_size
    if size == 0:
        raise ModelError("it has 0 bytes, and begins with no magic 'GGUF'")
    file = MappedFile(path)
    head = _Head(file.data)
    if (magic := bytes(head.read_bytes(4, "the magic"))) != b"GGUF":
        raise ModelError(f"its magic is {magic!r}: must be b'GGUF'")
    version = head.read_number("<I", "the version")
    if version not in VERSIONS:
        raise ModelError(f"its version is {version}: must be 2 or 3, little-endian")
    tensor_count = head.count("the number of tensors", MOST_TENSORS, 24)
    field_count = head.count("the number of fields", MOST_FIELDS, 13)
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        key = head.read_text("the key of a field")
        if key in fields:
            raise ModelError(f"the field {shorten_value(key)} is there twice")
        fields[key] = head.read_value(head.read_number("<I", f"the type of {shorten_value(key)}"), shorten_value(key))
    infos = {}
    for _ in range(tensor_count):
        name = head.read_text("the name of a tensor")
        if name in infos:
            raise ModelError(f"the tensor {shorten_value(name)} is there twice")
        infos[name] = head.read_tensor(shorten_value(name))
    start = -(-head.at // (alignment := _read_alignment(fields))) * alignment
    tensors = {name: info(head.data, start) for name, info in infos.items()}
    _check_apart(tensors)
    return GgufFile(fields, tensors, file)


def _check_apart(tensors: Mapping[str, StoredTensor]) -> None:
    """Tensors in the same bytes would let a small file say a model of any size."""
    places = sorted((tensor.data.ctypes.data, tensor.data.nbytes, name) for name, tensor in tensors.items())
    for (begin, size, name), (following, _, other) in pairwise(places):
        if following < begin + size:
            raise ModelError(
                f"the tensors {shorten_value(name)} and {shorten_value(other)} overlap: must have bytes of their own"
            )


def _read_alignment(fields: Mapping[str, Any]) -> int:
    value = fields.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or not 0 < value <= LARGEST_ALIGNMENT or value & (value - 1):
        raise ModelError(f"general.alignment is {shorten_value(value)}: must be a power of 2 up to {LARGEST_ALIGNMENT}")
    return value


class _Head:
    """A place in the file that moves on with what is read."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.at = 0
        self._end = min(len(data), LONGEST_HEAD)

    def read_bytes(self, size: int, what: str) -> np.ndarray:
        if size > self._end - self.at:
            ends = f"the file ends at byte {len(self.data)}"
            if len(self.data) > LONGEST_HEAD:
                ends = f"what is before the tensors must be at most {LONGEST_HEAD} bytes"
            raise ModelError(f"{what} has {size} bytes from byte {self.at} on: {ends}")
        self.at += size
        return self.data[self.at - size : self.at]

    def read_number(self, form: str, what: str) -> Any:
        return struct.unpack(form, self.read_bytes(struct.calcsize(form), what).data)[0]

    def count(self, what: str, most: int, item_bytes: int) -> int:
        """A number of items of ``item_bytes`` or more each, which all have to be in the head."""
        count: int = self.read_number("<Q", what)
        most = min(most, (self._end - self.at) // item_bytes)
        if count > most:
            raise ModelError(f"{what} is {count}: must be at most {most} in a file of {len(self.data)} bytes")
        return count

    def read_text(self, what: str) -> str:
        data = bytes(self.read_bytes(self.read_number("<Q", what), what))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{what} is {shorten_value(data)}: must be UTF-8") from error

    def read_value(self, kind: int, what: str) -> Any:
        if kind == _STRING:
            return self.read_text(what)
        if kind == _ARRAY:
            return self._read_array(what)
        return self._read_numbers(kind, 1, what)[0].item()

    def _read_array(self, what: str) -> list[str] | np.ndarray:
        kind: int = self.read_number("<I", f"the type of the elements of {what}")
        size = f"the number of elements of {what}"
        if kind == _STRING:
            return [self.read_text(f"an element of {what}") for _ in range(self.count(size, MOST_STRINGS, 8))]
        return self._read_numbers(kind, self.count(size, LONGEST_HEAD, 1), what)

    def _read_numbers(self, kind: int, count: int, what: str) -> np.ndarray:
        if kind not in _NUMBERS:
            nested = ", an array of arrays" if kind == _ARRAY else ""
            raise ModelError(f"{what} is of type {kind}{nested}: must be a number, a string or an array of these")
        dtype = np.dtype(_NUMBERS[kind])
        return self.read_bytes(count * dtype.itemsize, what).view(dtype)

    def read_tensor(self, name: str) -> Callable[[np.ndarray, int], StoredTensor]:
        """One tensor's entry; its place in the file follows once that of the first one is read."""
        count = self.read_number("<I", f"the number of dimensions of the tensor {name}")
        if not 1 <= count <= MOST_DIMENSIONS:
            raise ModelError(f"the tensor {name} has {count} dimensions: must be 1 to {MOST_DIMENSIONS}")
        sizes = struct.unpack(f"<{count}Q", self.read_bytes(8 * count, f"the shape of the tensor {name}").data)
        number, offset = (
            self.read_number("<I", f"the type of the tensor {name}"),
            self.read_number("<Q", f"the tensor {name}"),
        )
        try:
            kind = GGMLQuantizationType(number)
        except ValueError as error:
            raise ModelError(f"the tensor {name} is of type {number}: no such type is known") from error
        return lambda data, start: _build_tensor(data, start + offset, kind, sizes[::-1], name)


def _build_tensor(
    data: np.ndarray, start: int, kind: GGMLQuantizationType, shape: tuple[int, ...], name: str
) -> StoredTensor:
    elements, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % elements:
        raise ModelError(f"the tensor {name} has rows of {shape[-1]}: must be a multiple of {elements} as {kind.name}")
    size = math.prod(shape) // elements * block_bytes
    if not 0 < size <= len(data) - start:
        raise ModelError(
            f"the tensor {name} has the shape {list(shape)}, {shorten_value(size)} bytes from byte {start} on: "
            f"must be there, "
            f"and the file ends at byte {len(data)}"
        )
    stored = data[start : start + size]
    if kind in _ITEMS:
        return StoredTensor(kind, shape, stored.view(_ITEMS[kind]).reshape(shape))
    return StoredTensor(kind, shape, stored.reshape(*shape[:-1], shape[-1] // elements * block_bytes))
