"""The files of a model's folder: of bounded size, regular, and inside it."""

from collections.abc import Collection, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import Fields, parse_object, shorten_value
from paternoster_sources.names import INDEX, WHOLE, is_pickle, is_weights, missing_parts, usual_weights

MOST_WEIGHT_FILES = 1024
T = TypeVar("T")
LONGEST_JSON = 2**20
"""Bytes of a JSON file or a chat template that is not in :data:`LONGER`."""
LONGER = {"tokenizer.json": 128 * 2**20, "tokenizer_config.json": 16 * 2**20, INDEX: 64 * 2**20}
"""Most bytes by file, at least four times the largest known; Gemma 3 lists 6,000 tokens in tokenizer_config.json."""


class ModelFolder:
    """Each method raises :class:`ModelError` naming the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # The hub's cache keeps a model's files in `blobs` and links to them from `snapshots/REVISION`.
        root = path.resolve()
        self._root = root.parent.parent if root.parent.name == "snapshots" else root

    def has_file(self, name: str) -> bool:
        return (self.path / name).exists()

    def resolve_file(self, path: Path) -> Path:
        """``path``, if it is a regular file below the folder, links followed."""
        target = path.resolve()
        if not target.is_relative_to(self._root):
            raise ModelError(f"{path} is a link out of the model's folder: must lead to a file below {self._root}")
        if not target.is_file():
            raise ModelError(f"{path} is no regular file")
        return target

    def find_weights(self) -> dict[str, Path]:
        """Return the model's safetensors files by name: those of the index, or those with a usual name.

        As in transformers, a model.safetensors that the index does not name is the whole model.
        """
        names, listed = self._list_names("*.safetensors"), self._list_indexed()
        if not listed:
            chosen = sorted(usual_weights(names))
            if missing := missing_parts(chosen):
                raise ModelError(f"{self.path} has {some_of(chosen)}, but not {some_of(missing)}: must have every part")
        elif WHOLE in names and WHOLE not in listed:
            chosen = [WHOLE]
        else:
            chosen = listed
            if missing := [name for name in listed if name not in names]:
                raise ModelError(
                    f"{INDEX} names {some_of([*map(shorten_value, missing)])}: must be a file in {self.path}"
                )
        return {name: self.resolve_file(self.path / name) for name in chosen}

    def passes_over_index(self, chosen: Collection[str]) -> bool:
        """Whether the index names none of ``chosen``."""
        return self.has_file(INDEX) and not set(self._list_indexed()).intersection(chosen)

    def other_weights(self, chosen: Collection[str]) -> list[str]:
        """List files with weights beside ``chosen``."""
        names = (path.name for path in islice(self.path.iterdir(), MOST_WEIGHT_FILES))
        return sorted(name for name in names if name not in chosen and (is_weights(name) or is_pickle(name)))

    def _list_names(self, pattern: str) -> list[str]:
        names = [path.name for path in self.path.glob(pattern)]
        if len(names) > MOST_WEIGHT_FILES:
            raise ModelError(f"{self.path} has {len(names)} files {pattern}: must be at most {MOST_WEIGHT_FILES}")
        return names

    def _list_indexed(self) -> list[str]:
        """Files that the index names; none without an index."""
        if not self.has_file(INDEX):
            return []
        weight_map = Fields(self.json(INDEX), INDEX).read_mapping("weight_map")
        return sorted({str(name) for name in weight_map.values()})

    def read_text(self, name: str) -> str:
        """A file in UTF-8 of bounded size."""
        path, longest = self.path / name, LONGER.get(name, LONGEST_JSON)
        try:
            with self.resolve_file(path).open("rb") as file:
                data = file.read(longest + 1)
            if not data and name.endswith(".json"):
                raise ModelError(f"{path} is not JSON: it has 0 bytes")
            if len(data) > longest:
                raise ModelError(f"{path} is longer than {longest} bytes")
            return data.decode()
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ModelError(f"{path} is no UTF-8: byte {error.start}") from error

    def json(self, name: str) -> dict[str, Any]:
        """A file that has one JSON object."""
        return parse_object(self.read_text(name), str(self.path / name))

    def optional_json(self, name: str) -> dict[str, Any]:
        """Read a file as :meth:`json` does; empty for one that is not there."""
        return self.json(name) if self.has_file(name) else {}


def some_of(names: Collection[str], most: int = 8) -> str:
    """Format at most ``most`` of ``names`` for a message."""
    more = "" if len(names) <= most else f" and {len(names) - most} more"
    return ", ".join(islice(names, most)) + more


def add_tensors(tensors: dict[str, T], found: Mapping[str, T], file: str, files: dict[str, str]) -> None:
    """Add the tensors ``found`` in ``file``; ``files`` maps each tensor to its file.

    Raises :class:`ModelError` for a tensor in two files, since nothing says which of them is the model's.
    """
    if both := next((name for name in found if name in tensors), None):
        raise ModelError(f"the tensor {shorten_value(both)} is in {files[both]} and in {file}: must be in one of them")
    tensors.update(found)
    files.update(dict.fromkeys(found, file))
