"""A model on disk: its shape, its tensors by name and its tokenizer, whatever the file format."""

from typing import Protocol

from paternoster_engine.model.checkpoints.gguf_checkpoint import GgufCheckpoint
from paternoster_engine.model.checkpoints.safetensors_checkpoint import SafetensorsCheckpoint
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.sampling_defaults import SamplingDefaults
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.weights.stored import LazyTensor


class Checkpoint(Protocol):
    """What a loader needs of a file format."""

    @property
    def architecture(self) -> str: ...

    @property
    def notes(self) -> list[str]:
        """One line for each part of the files that is not used; complete once all tensors have been read."""
        ...

    @property
    def config(self) -> ModelConfig:
        """Raises :class:`UnsupportedModelError` when the architecture's fields are not all there."""
        ...

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Shape of the tensor with that Hugging Face name; raises :class:`ModelError` when it is missing."""
        ...

    def get_tensor(self, name: str) -> LazyTensor:
        """Tensor by its Hugging Face name, to be read in parts; raises :class:`ModelError` when it is missing."""
        ...

    def read_pooling(self) -> Pooling | None:
        """Pooling that the files name; None where they name none. Raises :class:`ModelError`."""
        ...

    def build_tokenizer(self) -> Tokenizer:
        """Raises :class:`ModelError`."""
        ...

    def sampling_defaults(self) -> SamplingDefaults:
        """The publisher's sampling settings for requests without their own; raises :class:`UnsupportedModelError`."""
        ...


def open_checkpoint(source: ModelSource) -> Checkpoint:
    """Read the metadata at ``source``; tensors are read when asked for."""
    if source.format == "gguf":
        return GgufCheckpoint(source.path)
    return SafetensorsCheckpoint(source.path)
