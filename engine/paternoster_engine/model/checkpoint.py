"""A model on disk: its shape, its tensors by name and its tokenizer, whatever the file format."""

from typing import Protocol

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.sampling_defaults import SamplingDefaults
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.weights.gguf_weights import GgufCheckpoint
from paternoster_engine.model.weights.safetensors_weights import SafetensorsCheckpoint
from paternoster_engine.model.weights.stored import Stored


class Checkpoint(Protocol):
    """What a loader needs of a file format."""

    architecture: str

    @property
    def notes(self) -> list[str]:
        """What of the files is not used, a line each, once the shape of each tensor was asked for."""
        ...

    @property
    def config(self) -> ModelConfig:
        """Raises :class:`UnsupportedModelError` when the architecture's fields are not all there."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the tensor with that Hugging Face name; raises :class:`ModelError` when it is missing."""
        ...

    def tensor(self, name: str) -> Stored:
        """Tensor by its Hugging Face name, to be read in parts; raises :class:`ModelError` when it is missing."""
        ...

    def tokenizer(self) -> Tokenizer:
        """Raises :class:`ModelError`."""
        ...

    def sampling_defaults(self) -> SamplingDefaults:
        """What the publisher recommends for requests that leave it out; raises :class:`UnsupportedModelError`."""
        ...


def open_checkpoint(source: ModelSource) -> Checkpoint:
    """Read the metadata at ``source``; tensors are read when asked for."""
    if source.format == "gguf":
        return GgufCheckpoint(source.path)
    return SafetensorsCheckpoint(source.path)
