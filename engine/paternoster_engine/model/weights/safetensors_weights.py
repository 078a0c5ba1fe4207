"""Weights, shape and tokenizer of a Hugging Face folder with safetensors."""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.model.weights.model_folder import LONGEST_TOKENIZER, ModelFolder


class SafetensorsCheckpoint:
    """A folder with config.json, tokenizer.json and one or several *.safetensors; tensors are mapped on demand."""

    def __init__(self, path: Path) -> None:
        self._folder = ModelFolder(path)
        self._config = self._folder.json("config.json")
        self.architecture = Fields(self._config, "config.json").text("model_type")
        self._files: dict[str, Any] = {}
        for weights in self._folder.weights():
            try:
                # The library bounds the header by the file's size, and each tensor by the header.
                file = safe_open(weights, framework="pt")
                self._files.update(dict.fromkeys(file.keys(), file))
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{weights} is not a readable safetensors file: {error}") from error

    @cached_property
    def config(self) -> ModelConfig:
        return ModelConfig.from_hf(self._config, self._folder.path.name)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file(name).get_slice(name).get_shape())

    def tensor(self, name: str) -> torch.Tensor:
        try:
            tensor: torch.Tensor = self._file(name).get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"{self._folder.path}: {name}: {error}") from error
        if not tensor.is_floating_point():
            raise ModelError(f"{self._folder.path}: {name} is of {tensor.dtype}: must be of floating-point numbers")
        return tensor

    def tokenizer(self) -> Tokenizer:
        optional = {
            name: self._folder.json(name) if self._folder.has(name) else {}
            for name in ("tokenizer_config.json", "generation_config.json")
        }
        return Tokenizer.from_json(
            self._folder.text("tokenizer.json", LONGEST_TOKENIZER),
            tokenizer_config=optional["tokenizer_config.json"],
            eos_token_ids=optional["generation_config.json"].get("eos_token_id", self._config.get("eos_token_id")),
            chat_template=self._chat_template(),
        )

    def _chat_template(self) -> str | None:
        name = "chat_template.jinja"
        return self._folder.text(name) if self._folder.has(name) else None

    def _file(self, name: str) -> Any:
        if name not in self._files:
            raise ModelError(f"{self._folder.path} has no tensor {name!r}")
        return self._files[name]
