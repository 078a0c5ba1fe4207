"""A model on disk: its shape, its tensors by name and its tokenizer, whatever the file format."""

from typing import Protocol

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.gguf_weights import GgufCheckpoint
from paternoster_engine.model.safetensors_weights import SafetensorsCheckpoint
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer


class Checkpoint(Protocol):
    """What a loader needs of a file format."""

    architecture: str

    @property
    def config(self) -> ModelConfig:
        """Raises :class:`UnsupportedModelError` when the architecture's fields are not all there."""
        ...

    def tensor(self, name: str) -> torch.Tensor:
        """Tensor by its Hugging Face name; raises :class:`ModelError` when it is missing."""
        ...

    def tokenizer(self) -> Tokenizer: ...


def open_checkpoint(source: ModelSource) -> Checkpoint:
    """Read the metadata at ``source``; tensors are read when asked for."""
    if source.format == "gguf":
        return GgufCheckpoint(source.path)
    return SafetensorsCheckpoint(source.path)
