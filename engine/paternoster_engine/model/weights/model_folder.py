"""The files of a model's folder: of bounded size, regular, and inside it."""

from pathlib import Path
from typing import Any

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import parse_object

MOST_WEIGHT_FILES = 1024
LONGEST_JSON = 2**20
"""Bytes of a JSON file or a chat template that is not in :data:`LONGER`."""
INDEX = "model.safetensors.index.json"
LONGER = {"tokenizer.json": 128 * 2**20, "tokenizer_config.json": 16 * 2**20, INDEX: 64 * 2**20}
"""Bytes by file: four times the largest known and more; Gemma 3 lists 6,000 tokens in its tokenizer_config.json."""


class ModelFolder:
    """Each method raises :class:`ModelError` naming the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # The hub's cache keeps a model's files in `blobs` and links to them from `snapshots/REVISION`.
        root = path.resolve()
        self._root = root.parent.parent if root.parent.name == "snapshots" else root

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def file(self, path: Path) -> Path:
        """``path``, if it is a regular file below the folder, links followed."""
        target = path.resolve()
        if not target.is_relative_to(self._root):
            raise ModelError(f"{path} is a link out of the model's folder: must lead to a file below {self._root}")
        if not target.is_file():
            raise ModelError(f"{path} is no regular file")
        return target

    def weights(self) -> list[Path]:
        """The safetensors files, by name."""
        paths = sorted(self.path.glob("*.safetensors"))
        if len(paths) > MOST_WEIGHT_FILES:
            raise ModelError(f"{self.path} has {len(paths)} safetensors files: must be at most {MOST_WEIGHT_FILES}")
        return [self.file(path) for path in paths]

    def text(self, name: str) -> str:
        """A file in UTF-8 of bounded size."""
        path, longest = self.path / name, LONGER.get(name, LONGEST_JSON)
        try:
            with self.file(path).open("rb") as file:
                data = file.read(longest + 1)
            if len(data) > longest:
                raise ModelError(f"{path} is longer than {longest} bytes")
            return data.decode()
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ModelError(f"{path} is no UTF-8: byte {error.start}") from error

    def json(self, name: str) -> dict[str, Any]:
        """A file that has one JSON object."""
        return parse_object(self.text(name), str(self.path / name))

    def optional_json(self, name: str) -> dict[str, Any]:
        """As :meth:`json`; empty for a file that is not there."""
        return self.json(name) if self.has(name) else {}
