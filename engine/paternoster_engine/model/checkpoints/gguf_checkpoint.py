"""Weights, shape and tokenizer of a GGUF file."""

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from gguf import TensorNameMap, get_tensor_name_map
from gguf.constants import GGML_QUANT_SIZES, MODEL_ARCH_NAMES
from gguf.constants import GGMLQuantizationType as QuantizationType
from gguf.quants import dequantize

from paternoster_engine.model.config import LARGEST_HEAD, LARGEST_SIZE, ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.families.family import Family, rows_of, stored_name
from paternoster_engine.model.families.read import config_from_gguf
from paternoster_engine.model.families.registry import find_family
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.pooling import Pooling, PoolingMode
from paternoster_engine.model.sampling_defaults import SamplingDefaults, defaults_of_gguf
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.unread_fields import GGUF, RecordedFields, note_unread
from paternoster_engine.model.weights.gguf_file import StoredTensor
from paternoster_engine.model.weights.gguf_parts import read_parts
from paternoster_engine.model.weights.mapped_file import MappedFile
from paternoster_engine.model.weights.other_files import note_of_unused
from paternoster_engine.model.weights.stored import Cut, InBlocks, LazyTensor, TensorSlice, block_format, whole_cut
from paternoster_kernels.blocks import FORMATS, GGUF_FORMATS, BlockFormat
from paternoster_sources.names import whole_stem

ROPE_DIVISORS = "rope_freqs.weight", "rope_factors_short.weight"
POOLING_TYPES: Mapping[int, PoolingMode] = {1: "mean", 2: "cls", 3: "last"}


class GgufCheckpoint:
    """A .gguf file, memory-mapped, or all parts of a split one, of which ``path`` is the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        fields, self._tensors, self._homes = read_parts(path)
        self._fields = RecordedFields(fields)
        self._used: set[str] = set()
        self.architecture = Fields(self._fields, path.name).read_text("general.architecture")

    @cached_property
    def config(self) -> ModelConfig:
        names = frozenset(self._tensors)
        return config_from_gguf(self._fields, names, whole_stem(self._path.name), self._rope_divisors())

    @cached_property
    def _family(self) -> Family:
        return find_family(self.architecture)

    @cached_property
    def _names(self) -> TensorNameMap:
        architectures = {name: architecture for architecture, name in MODEL_ARCH_NAMES.items()}
        return get_tensor_name_map(architectures[self.architecture], self.config.num_layers)

    def shape_of(self, name: str) -> tuple[int, ...]:
        stored, rows = self._find_stored(name), rows_of(self.config, self._family, name)
        return stored.shape if rows is None else (len(range(stored.shape[0])[rows]), *stored.shape[1:])

    def get_tensor(self, name: str) -> LazyTensor:
        stored, rows = self._find_stored(name), rows_of(self.config, self._family, name)
        tensor: LazyTensor = GgufTensor(self._find_file(name), stored, f"{self._path.name}: {name}")
        if rows is not None:
            tensor = TensorSlice(tensor, 0, rows.start, len(range(tensor.shape[0])[rows]))
        if self._family.interleaved and name.split(".")[-2] in ("q_proj", "k_proj"):
            return RotateHalfRows(tensor, self.config.head_dim)
        return tensor

    def build_tokenizer(self) -> Tokenizer:
        return Tokenizer.from_gguf(self._fields)

    def read_pooling(self) -> Pooling | None:
        """Read ``pooling_type``, a number of llama.cpp's ``llama_pooling_type``."""
        fields = Fields(self._fields, "the GGUF file", f"{self.architecture}.")
        number = fields.read_integer("pooling_type", LARGEST_SIZE, least=0, default=0)
        if number == 0:
            return None
        if number not in POOLING_TYPES:
            allowed = ", ".join(f"{type} ({mode})" for type, mode in POOLING_TYPES.items())
            raise fields.describe_refusal("pooling_type", number, f"0 (none), {allowed}")
        return Pooling(POOLING_TYPES[number], self.config.hidden_size)

    def sampling_defaults(self) -> SamplingDefaults:
        return defaults_of_gguf(self._fields)

    @property
    def notes(self) -> list[str]:
        unused = note_of_unused(name for name in self._tensors if name not in self._used)
        return [*note_unread(self._fields, GGUF), *unused]

    def _rope_divisors(self) -> list[float]:
        """Divisors of each frequency of the rotary embedding; empty where the file has none.

        Of LongRoPE's two lists the short one: contexts that the long one is for are not served.
        """
        name = next((name for name in ROPE_DIVISORS if name in self._tensors), None)
        if name is None:
            return []
        stored = self._tensors[name]
        self._used |= {name, "rope_factors_long.weight"}
        if len(stored.shape) != 1 or stored.shape[0] > LARGEST_HEAD // 2 or stored.kind is not QuantizationType.F32:
            kind = f"{stored.kind.name} of shape {list(stored.shape)}"
            raise ModelError(f"{self._path.name}: {name} is {kind}: must be at most {LARGEST_HEAD // 2} F32")
        return [float(value) for value in stored.data]

    def _find_file(self, name: str) -> MappedFile:
        """The file that has the tensor ``name``."""
        return self._homes[self._translate_name(name)[0]]

    def _find_stored(self, name: str) -> StoredTensor:
        stored, expert = self._translate_name(name)
        tensor = self._tensors[stored]
        return tensor if expert is None else tensor.select_expert(expert)

    def _translate_name(self, name: str) -> tuple[str, int | None]:
        """The file's name of the decoder's tensor ``name``, and the number of the expert that it is of."""
        before, experts, number = name.partition(".experts.")
        if experts:
            # All experts of a layer are in one tensor.
            number, _, part = number.partition(".")
            name = f"{before}{experts}{part}"
        stored = self._names.get_name(stored_name(self._family, name), try_suffixes=(".weight", ".bias"))
        if stored not in self._tensors:
            raise ModelError(f"{self._path.name} has no tensor {stored or name!r}")
        self._used.add(stored)
        return stored, int(number) if experts else None


class GgufTensor:
    """A :class:`LazyTensor` of float32 numbers, of which cut blocks are read as a whole; and of its blocks."""

    def __init__(self, file: MappedFile, stored: StoredTensor, what: str) -> None:
        self._file, self._stored, self._what = file, stored, what
        self.shape = stored.shape

    @property
    def format(self) -> BlockFormat | None:
        """Format of a matrix in blocks that are multiplied with as they are."""
        name = self._stored.kind.name
        return FORMATS[name] if name in GGUF_FORMATS and len(self.shape) == 2 else None

    def read_blocks(self, first: int, last: int) -> torch.Tensor:
        """Read rows in blocks, see :class:`InBlocks`."""
        part = self._stored.data[first:last]
        # The map is read-only, and torch has no such tensors.
        found = torch.from_numpy(part.copy())
        self._file.has_read(part.nbytes)
        return found

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        *rows, (first, last) = whole_cut(cut, self.shape)
        if any(stop <= start for start, stop in (*rows, (first, last))):
            return torch.empty(*(max(0, stop - start) for start, stop in rows), max(0, last - first))
        data, kind = self._stored.data, self._stored.kind
        # What is not stored in blocks of bytes is stored in numbers.
        elements, block_bytes = GGML_QUANT_SIZES[kind] if data.dtype == np.uint8 else (1, 1)
        blocks = slice(first // elements * block_bytes, -(-last // elements) * block_bytes)
        part = data[(*(slice(*bound) for bound in rows), blocks)]
        try:
            values = dequantize(part, kind)
        except NotImplementedError as error:
            raise ModelError(f"{self._what} is of type {kind.name}: must be of {', '.join(served_types())}") from error
        # Unquantised tensors come as views of the read-only map.
        found = torch.from_numpy(np.require(values, requirements="W"))
        self._file.has_read(part.nbytes)
        before = first % elements
        return found[..., before : before + last - first]


@cache
def served_types() -> tuple[str, ...]:
    """Names of the types of tensors that are read, those first that are kept as they are."""
    kinds = [kind for kind in QuantizationType if kind.name not in GGUF_FORMATS and _has_numbers(kind)]
    return (*GGUF_FORMATS, *(kind.name for kind in kinds))


def _has_numbers(kind: QuantizationType) -> bool:
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


class RotateHalfRows:
    """Rows of q and k in the rotate-half order: llama.cpp's has the rows of each rotary pair side by side."""

    def __init__(self, stored: LazyTensor, head_dim: int) -> None:
        self._stored, self._head_dim = stored, head_dim
        self.shape = stored.shape
        self.format = block_format(stored)

    def __getitem__(self, cut: Cut) -> torch.Tensor:
        (first, last), *others = whole_cut(cut, self.shape)
        heads = self._heads_of(first, last)
        pairs = self._stored[(heads, *(slice(*bound) for bound in others))]
        return self._split_halves(pairs)[first - heads.start : last - heads.start]

    def read_blocks(self, first: int, last: int) -> torch.Tensor:
        """Read rows in blocks, see :class:`InBlocks`."""
        assert isinstance(self._stored, InBlocks)
        heads = self._heads_of(first, last)
        return self._split_halves(self._stored.read_blocks(heads.start, heads.stop))[
            first - heads.start : last - heads.start
        ]

    def _heads_of(self, first: int, last: int) -> slice:
        """Rows of the heads that rows ``first`` to ``last`` are of."""
        size = self._head_dim
        return slice(first // size * size, -(-last // size) * size)

    def _split_halves(self, pairs: torch.Tensor) -> torch.Tensor:
        """The rows of whole heads, the first ones of all pairs of a head before the second ones."""
        size = self._head_dim
        halves = pairs.reshape(len(pairs) // size, size // 2, 2, *pairs.shape[1:]).transpose(1, 2)
        return halves.reshape(pairs.shape)
