"""A folder with an encoder: its shape, its tensors by name and its tokenizer."""

from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from paternoster_engine.model.encoders.config import ENCODERS, EncoderConfig, encoder_config
from paternoster_engine.model.encoders.pooling_files import read_pooling
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.tokenizer_folder import tokenizer_files
from paternoster_engine.model.unread_fields import ENCODER_CONFIG, RecordedFields, note_unread
from paternoster_engine.model.weights.model_folder import ModelFolder, add_tensors
from paternoster_engine.model.weights.other_files import note_of_other_weights, note_of_unused


def is_encoder(source: ModelSource) -> bool:
    """Whether what is at ``source`` reads texts in both directions; raises :class:`ModelError`."""
    return source.format == "safetensors" and ModelFolder(source.path).json("config.json").get("model_type") in ENCODERS


class EncoderCheckpoint:
    """Tensors are read when asked for; every method raises :class:`ModelError`."""

    def __init__(self, source: ModelSource) -> None:
        self._folder = ModelFolder(source.path)
        self._values = values = RecordedFields(self._folder.json("config.json"))
        self.config: EncoderConfig = encoder_config(values, source.path.name, read_pooling(self._folder, values))
        self._files: dict[str, Any] = {}
        homes: dict[str, str] = {}
        self._weights = self._folder.find_weights()
        for name, weights in self._weights.items():
            try:
                file = safe_open(weights, framework="pt")
                add_tensors(self._files, dict.fromkeys(file.keys(), file), name, homes)
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{weights} is not a readable safetensors file: {error}") from error
        self._names = dict(self._find(name, shape) for name, shape in self.config.tensor_shapes())

    def get_tensor(self, name: str) -> torch.Tensor:
        """Get a tensor by its name of :meth:`EncoderConfig.shapes`."""
        stored = self._names[name]
        try:
            tensor: torch.Tensor = self._files[stored].get_tensor(stored)
        except SafetensorError as error:
            raise ModelError(f"{self._folder.path}: {stored}: {error}") from error
        if not tensor.is_floating_point():
            raise ModelError(f"{self._folder.path}: {stored} is of {tensor.dtype}: must be of floating-point numbers")
        return tensor

    @property
    def notes(self) -> list[str]:
        """What of the files is not used, a line each."""
        others = note_of_other_weights(self._folder, self._weights)
        return [
            *others,
            *note_unread(self._values, ENCODER_CONFIG),
            *note_of_unused(self._files.keys() - self._names.values()),
        ]

    def build_tokenizer(self) -> Tokenizer:
        return Tokenizer.from_json(tokenizer_files(self._folder, None, self.config.vocab_size))

    def _find(self, name: str, shape: tuple[int, ...]) -> tuple[str, str]:
        """(``name``, the file's name for it); checks its shape."""
        prefix = ENCODERS[self.config.architecture].prefix
        stored = next((n for n in (name, prefix + name) if n in self._files), None)
        if stored is None:
            raise ModelError(f"{self._folder.path} has no tensor {name!r}")
        found = tuple(self._files[stored].get_slice(stored).get_shape())
        if found != shape:
            raise ModelError(f"{stored} has the shape {list(found)}: must be {list(shape)} by the model's own sizes")
        return name, stored
