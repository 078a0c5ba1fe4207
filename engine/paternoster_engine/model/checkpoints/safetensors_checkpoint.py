"""Weights, shape and tokenizer of a Hugging Face folder with safetensors."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.encoders.pooling_files import read_pooling
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.families.family import Family, rows_of, stored_name
from paternoster_engine.model.families.read import config_from_hf
from paternoster_engine.model.families.registry import find_family
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.sampling_defaults import SamplingDefaults, defaults_of_generation_config
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.tokenizer_folder import (
    chat_template,
    note_of_templates,
    tokenizer_files,
    tool_use_template,
)
from paternoster_engine.model.unread_fields import CONFIG, RecordedFields, note_unread
from paternoster_engine.model.weights.model_folder import ModelFolder, add_tensors
from paternoster_engine.model.weights.other_files import note_of_unused, notes_of_folder, quantization_of
from paternoster_engine.model.weights.quantized import QuantizedMatrices
from paternoster_engine.model.weights.safetensors_file import FLOATS, TYPES, FileTensor, read_safetensors
from paternoster_engine.model.weights.stored import LazyTensor, TensorSlice


class SafetensorsCheckpoint:
    """A folder with config.json, tokenizer.json and one or several *.safetensors; tensors are read on demand."""

    def __init__(self, path: Path) -> None:
        self._folder = ModelFolder(path)
        self._config = RecordedFields(self._folder.json("config.json"))
        self.architecture = Fields(self._config, "config.json").read_text("model_type")
        self._quantized = QuantizedMatrices(quantization_of(self._folder, self._config))
        self._generation = RecordedFields(self._folder.optional_json("generation_config.json"))
        self._files: dict[str, FileTensor] = {}
        weights, homes = self._folder.find_weights(), dict[str, str]()
        for name, path in weights.items():
            add_tensors(self._files, read_safetensors(path), name, homes)
        self._used: set[str] = set()
        self._notes = notes_of_folder(self._folder, self._config, weights)

    @cached_property
    def config(self) -> ModelConfig:
        return config_from_hf(self._config, self._folder.path.name)

    @cached_property
    def _family(self) -> Family:
        return find_family(self.architecture)

    def shape_of(self, name: str) -> tuple[int, ...]:
        if (own := self._of_expert(name, meta=True)) is not None:
            return tuple(own.shape)
        rows = rows_of(self.config, self._family, name)
        matrix = self._find_matrix(name)
        shape = tuple(self._files[self._stored_name(name)].shape if matrix is None else matrix.shape)
        return shape if rows is None else (len(range(shape[0])[rows]), *shape[1:])

    def get_tensor(self, name: str) -> LazyTensor:
        if (own := self._of_expert(name)) is not None:
            return own
        rows = rows_of(self.config, self._family, name)
        tensor: LazyTensor | None = self._find_matrix(name)
        if tensor is None:
            tensor = self._find_numbers(self._stored_name(name))
        offset = self._family.norm_offset
        if offset and name.endswith("norm.weight"):
            return tensor[()].float() + offset
        return tensor if rows is None else TensorSlice(tensor, 0, rows.start, len(range(tensor.shape[0])[rows]))

    @property
    def notes(self) -> list[str]:
        unused = note_of_unused(name for name in self._files if name not in self._used)
        return [*self._notes, *note_unread(self._config, CONFIG), *unused]

    def build_tokenizer(self) -> Tokenizer:
        ends = self._generation.get("eos_token_id")
        for config in (self._config, Fields(self._config, "config.json").read_mapping("text_config")):
            ends = config.get("eos_token_id") if ends is None else ends
        files = tokenizer_files(self._folder, ends, self.config.vocab_size)
        tokenizer = Tokenizer.from_json(files, chat_template(self._folder, files), tool_use_template(self._folder))
        tokenizer.notes = [*tokenizer.notes, *note_of_templates(self._folder, files)]
        return tokenizer

    def read_pooling(self) -> Pooling | None:
        return read_pooling(self._folder, self._config)

    def sampling_defaults(self) -> SamplingDefaults:
        return defaults_of_generation_config(self._generation)

    def _find_numbers(self, stored: str) -> FileTensor:
        tensor = self._files[stored]
        if tensor.kind not in FLOATS:
            raise ModelError(f"{self._folder.path}: {stored} is of {tensor.kind}: must be of {', '.join(FLOATS)}")
        return tensor

    def _find_matrix(self, name: str) -> LazyTensor | None:
        """A matrix of few bits, by all the tensors that say it; None for others."""
        base, _, kind = name.rpartition(".")
        if kind != "weight":
            return None

        def find(suffix: str) -> FileTensor | None:
            stored = self._find(f"{base}.{suffix}")
            return None if stored is None else self._files[stored]

        return self._quantized.find_matrix(base, find)

    def _of_expert(self, name: str, *, meta: bool = False) -> LazyTensor | None:
        """A part of an expert that is held in the family's own way; ``meta``: with its shape alone."""
        if self._family.expert is None:
            return None
        return self._family.expert(ExpertFiles(self._folder.path, self._files, self._used, meta=meta), name)

    def _stored_name(self, name: str) -> str:
        """The file's name of the decoder's tensor ``name``; raises :class:`ModelError` where there is none."""
        stored = self._find(name)
        if stored is None:
            raise ModelError(f"{self._folder.path} has no tensor {stored_name(self._family, name)!r}")
        return stored

    def _find(self, name: str) -> str | None:
        """Name in the file, see :meth:`_stored_name`; None where there is none."""
        name = stored_name(self._family, name)
        # What is no module's has no suffix; the text's decoder of a model that takes images as well has a prefix, and
        # one that was saved without its output projection has none.
        others = (
            name.removesuffix(".weight"),
            name.removeprefix("model."),
            f"language_model.{name}",
            name.replace("model.", "model.language_model.", 1),
        )
        found = next((stored for stored in (name, *others) if stored in self._files), None)
        if found is not None:
            self._used.add(found)
        return found


class ExpertFiles:
    """Tensors whose first dimension is of experts, by the files' own names; as :class:`families.family.Files`."""

    def __init__(self, folder: Path, files: Mapping[str, FileTensor], used: set[str], *, meta: bool) -> None:
        """``used`` collects the names of the tensors that are read."""
        self._folder, self._files, self._used, self._meta = folder, files, used, meta

    def has_tensor(self, name: str) -> bool:
        return name in self._files

    def read_part(self, name: str, index: int) -> torch.Tensor:
        if name not in self._files:
            raise ModelError(f"{self._folder} has no tensor {name!r}")
        stored = self._files[name]
        self._used.add(name)
        shape = stored.shape
        if len(shape) < 2 or index >= shape[0]:
            raise ModelError(
                f"{self._folder}: {name} has the shape {list(shape)}: must be of more than {index} experts"
            )
        if stored.kind not in TYPES:
            raise ModelError(f"{self._folder}: {name} is of {stored.kind}: must be of {', '.join(TYPES)}")
        if self._meta:
            return torch.empty(shape[1:], dtype=TYPES[stored.kind], device="meta")
        return stored[(slice(index, index + 1),)][0]
