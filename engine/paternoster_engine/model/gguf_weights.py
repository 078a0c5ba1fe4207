"""Weights, shape and tokenizer of a GGUF file."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, TensorNameMap, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES
from gguf.quants import dequantize

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.tokenizer import Tokenizer


class GgufCheckpoint:
    """One .gguf file, memory-mapped; tensors are dequantised to float32 on demand."""

    def __init__(self, path: Path) -> None:
        try:
            reader = GGUFReader(path)
        except (ValueError, OSError) as error:
            raise ModelError(f"{path} is not a readable GGUF file: {error}") from error
        self._path = path
        self._metadata: dict[str, Any] = {key: field.contents() for key, field in reader.fields.items()}
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.architecture: str = self._metadata["general.architecture"]

    @cached_property
    def config(self) -> ModelConfig:
        return ModelConfig.from_gguf(self._metadata, frozenset(self._tensors), self._path.stem)

    @cached_property
    def _names(self) -> TensorNameMap:
        architectures = {name: architecture for architecture, name in MODEL_ARCH_NAMES.items()}
        return get_tensor_name_map(architectures[self.architecture], self.config.num_layers)

    def tensor(self, name: str) -> torch.Tensor:
        stored = self._names.get_name(name, try_suffixes=(".weight",))
        if stored not in self._tensors:
            raise ModelError(f"{self._path.name} has no tensor {stored or name!r}")
        source = self._tensors[stored]
        # Unquantised tensors come as views of the read-only map.
        weight = torch.from_numpy(np.require(dequantize(source.data, source.tensor_type), requirements="W"))
        if self.architecture == "llama" and name.endswith("q_proj.weight"):
            return _unpermute(weight, self.config.num_heads)
        if self.architecture == "llama" and name.endswith("k_proj.weight"):
            return _unpermute(weight, self.config.num_kv_heads)
        return weight

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_gguf(self._metadata)


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order of Llama's q and k (rotary pairs side by side) for the rotate-half order."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
