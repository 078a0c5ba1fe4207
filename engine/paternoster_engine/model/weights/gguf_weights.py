"""Weights, shape and tokenizer of a GGUF file."""

from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from gguf import TensorNameMap, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES
from gguf.constants import GGMLQuantizationType as QuantizationType
from gguf.quants import dequantize

from paternoster_engine.model.config import LARGEST_HEAD, ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.families.family import Family, rows_of, stored_name
from paternoster_engine.model.families.read import config_from_gguf
from paternoster_engine.model.families.registry import find_family
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.weights.gguf_file import StoredTensor, read_gguf


class GgufCheckpoint:
    """One .gguf file, memory-mapped; tensors are dequantised to float32 on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        file = read_gguf(path)
        self._fields, self._tensors = file.fields, file.tensors
        self.architecture = Fields(self._fields, path.name).text("general.architecture")

    @cached_property
    def config(self) -> ModelConfig:
        names = frozenset(self._tensors)
        return config_from_gguf(self._fields, names, self._path.stem, self._rope_divisors())

    @cached_property
    def _family(self) -> Family:
        return find_family(self.architecture)

    @cached_property
    def _names(self) -> TensorNameMap:
        architectures = {name: architecture for architecture, name in MODEL_ARCH_NAMES.items()}
        return get_tensor_name_map(architectures[self.architecture], self.config.num_layers)

    def shape(self, name: str) -> tuple[int, ...]:
        stored, rows = self._stored(name), rows_of(self.config, self._family, name)
        return stored.shape if rows is None else (len(range(stored.shape[0])[rows]), *stored.shape[1:])

    def tensor(self, name: str) -> torch.Tensor:
        stored, rows = self._stored(name), rows_of(self.config, self._family, name)
        try:
            values = dequantize(stored.data if rows is None else stored.data[rows], stored.kind)
        except NotImplementedError as error:
            raise ModelError(f"{self._path.name}: {name} is stored as {stored.kind.name}: not built in") from error
        # Unquantised tensors come as views of the read-only map.
        weight = torch.from_numpy(np.require(values, requirements="W"))
        heads = {"q_proj": self.config.num_heads, "k_proj": self.config.num_kv_heads}.get(name.split(".")[-2])
        return weight if heads is None or not self._family.interleaved else _unpermute(weight, heads)

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_gguf(self._fields)

    def _rope_divisors(self) -> list[float]:
        """Of each frequency of the rotary embedding; empty where the file has none."""
        stored = self._tensors.get("rope_freqs.weight")
        if stored is None:
            return []
        if len(stored.shape) != 1 or stored.shape[0] > LARGEST_HEAD // 2 or stored.kind is not QuantizationType.F32:
            kind = f"{stored.kind.name} of shape {list(stored.shape)}"
            raise ModelError(f"{self._path.name}: rope_freqs.weight is {kind}: must be at most {LARGEST_HEAD // 2} F32")
        return [float(value) for value in stored.data]

    def _stored(self, name: str) -> StoredTensor:
        before, experts, number = name.partition(".experts.")
        if experts:
            # All experts of a layer are in one tensor.
            number, _, part = number.partition(".")
            name = f"{before}{experts}{part}"
        stored = self._names.get_name(stored_name(self._family, name), try_suffixes=(".weight", ".bias"))
        if stored not in self._tensors:
            raise ModelError(f"{self._path.name} has no tensor {stored or name!r}")
        return self._tensors[stored].expert(int(number)) if experts else self._tensors[stored]


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order of q and k (rotary pairs side by side) for the rotate-half order."""
    pairs = weight.view(num_heads, len(weight) // num_heads // 2, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)
