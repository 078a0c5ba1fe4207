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
        return ModelConfig.from_gguf(self._fields, names, self._path.stem, self._rope_divisors())

    @cached_property
    def _names(self) -> TensorNameMap:
        architectures = {name: architecture for architecture, name in MODEL_ARCH_NAMES.items()}
        return get_tensor_name_map(architectures[self.architecture], self.config.num_layers)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._stored(name).shape

    def tensor(self, name: str) -> torch.Tensor:
        stored = self._stored(name)
        try:
            values = dequantize(stored.data, stored.kind)
        except NotImplementedError as error:
            raise ModelError(f"{self._path.name}: {name} is stored as {stored.kind.name}: not built in") from error
        # Unquantised tensors come as views of the read-only map.
        weight = torch.from_numpy(np.require(values, requirements="W"))
        if self.architecture == "llama" and name.endswith("q_proj.weight"):
            return _unpermute(weight, self.config.num_heads)
        if self.architecture == "llama" and name.endswith("k_proj.weight"):
            return _unpermute(weight, self.config.num_kv_heads)
        return weight

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
        stored = self._names.get_name(name, try_suffixes=(".weight",))
        if stored not in self._tensors:
            raise ModelError(f"{self._path.name} has no tensor {stored or name!r}")
        return self._tensors[stored]


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order of Llama's q and k (rotary pairs side by side) for the rotate-half order."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
