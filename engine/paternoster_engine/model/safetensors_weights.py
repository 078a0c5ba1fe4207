"""Weights, shape and tokenizer of a Hugging Face folder with safetensors."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.tokenizer import Tokenizer


class SafetensorsCheckpoint:
    """A folder with config.json, tokenizer.json and one or several *.safetensors; tensors are mapped on demand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = self._json("config.json")
        self.architecture: str = self._config.get("model_type", "")
        self._files: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            file = safe_open(path, framework="pt")
            self._files.update(dict.fromkeys(file.keys(), file))

    @cached_property
    def config(self) -> ModelConfig:
        return ModelConfig.from_hf(self._config, self._folder.name)

    def tensor(self, name: str) -> torch.Tensor:
        if name not in self._files:
            raise ModelError(f"{self._folder} has no tensor {name!r}")
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        return tensor

    def tokenizer(self) -> Tokenizer:
        optional = {
            name: self._json(name) if (self._folder / name).exists() else {}
            for name in ("tokenizer_config.json", "generation_config.json")
        }
        return Tokenizer.from_json(
            (self._folder / "tokenizer.json").read_text(),
            tokenizer_config=optional["tokenizer_config.json"],
            eos_token_ids=optional["generation_config.json"].get("eos_token_id", self._config.get("eos_token_id")),
            chat_template=self._chat_template(),
        )

    def _chat_template(self) -> str | None:
        path = self._folder / "chat_template.jinja"
        return path.read_text() if path.exists() else None

    def _json(self, name: str) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads((self._folder / name).read_text())
        except json.JSONDecodeError as error:
            raise ModelError(f"{self._folder / name} is not JSON: {error}") from error
        return document
