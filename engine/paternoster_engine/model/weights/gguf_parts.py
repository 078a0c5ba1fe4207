"""A model that is split over several GGUF files, as llama.cpp's gguf-split writes it: ``x-00001-of-00003.gguf``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paternoster_engine.model.errors import ModelError
from paternoster_engine.model.fields import Fields, shorten_value
from paternoster_engine.model.weights.gguf_file import GgufFile, StoredTensor, read_gguf
from paternoster_engine.model.weights.mapped_file import MappedFile
from paternoster_sources.names import MOST_PARTS, parts_of

Parts = tuple[Mapping[str, Any], dict[str, StoredTensor], dict[str, MappedFile]]
"""The first part's fields, which are the model's; all parts' tensors; and the file of each."""


def read_parts(path: Path) -> Parts:
    """Read the model in ``path``, which is a whole file or the first part of a split model.

    Raises :class:`ModelError` for a part that is missing, that is another part than its name says, or that has a
    tensor of another one.
    """
    paths = [path.parent / name for name in parts_of(path.name)]
    first: GgufFile | None = None
    tensors: dict[str, StoredTensor] = {}
    homes: dict[str, MappedFile] = {}
    for number, part in enumerate(paths):
        file = read_gguf(part)
        _check_part(file, part, number, len(paths))
        first = first or file
        for name, tensor in file.tensors.items():
            if name in tensors:
                raise ModelError(
                    f"{part} has the tensor {shorten_value(name)}, which a part before has: must be in one part"
                )
            tensors[name], homes[name] = tensor, file.file
    assert first is not None
    count = Fields(first.fields, path.name).read_integer("split.tensors.count", 2**31, least=0, default=len(tensors))
    if count != len(tensors):
        raise ModelError(f"{path}: split.tensors.count is {count}: its parts have {len(tensors)} tensors")
    return first.fields, tensors, homes


def _check_part(file: GgufFile, path: Path, number: int, count: int) -> None:
    fields = Fields(file.fields, path.name)
    stated = fields.read_integer("split.count", MOST_PARTS, least=0, default=0)
    # A model that was merged again may have 0 or 1.
    if max(1, stated) != count:
        raise fields.describe_refusal(
            "split.count", stated, f"{count}, as its name says; parts are named x-00001-of-00003.gguf"
        )
    if count > 1 and (no := fields.read_integer("split.no", MOST_PARTS, least=0, default=0)) != number:
        raise fields.describe_refusal("split.no", no, f"{number}, as its name says")
