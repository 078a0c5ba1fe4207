"""Which names of files are believed, and which files are a model's."""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from paternoster_sources.errors import UnsafeListing

LONGEST_NAME = 255
"""Bytes of one component, as file systems have it."""
LONGEST_PATH = 1024

SIDE_FILES = ("*.json", "*.jinja", "tokenizer.model", "spiece.model", "sentencepiece*.model", "merges.txt", "vocab.txt")
"""What belongs to safetensors: configuration, tokenizer and chat templates."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle", "*.msgpack", "*.h5")
"""Weights in formats that run code when they are read, or that nothing here reads."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5,6})-of-(?P<count>\d{5,6})(?P<ending>\.gguf|\.safetensors)")
_USUAL = re.compile(r"model([._-].*)?\.safetensors")
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
"""Files that PEFT writes of an adapter (LoRA)."""
MOST_PARTS = 2048
BESIDE_GGUF = ("mmproj*.gguf", "imatrix*.gguf")
"""GGUF files beside a language model: projectors of images, and statistics of activations."""


def check_name(name: str) -> str:
    """``name``, if it is a relative path that leads below where it starts; raises :class:`UnsafeListing`."""
    parts = name.split("/")
    if (
        not name
        or len(name.encode(errors="replace")) > LONGEST_PATH
        or any(part in ("", ".", "..") or len(part.encode(errors="replace")) > LONGEST_NAME for part in parts)
        or "\\" in name
        or _CONTROL.search(name)
        or not name.isprintable()
    ):
        raise UnsafeListing(
            f"the source names a file {name[:200]!r}: must be a relative path of printable characters, without '.', "
            f"'..' or '\\', of at most {LONGEST_PATH} bytes"
        )
    return name


def base_name(name: str) -> str:
    return PurePosixPath(name).name


def is_top(name: str) -> bool:
    return "/" not in name


def is_gguf(name: str) -> bool:
    return base_name(name).endswith(".gguf")


def is_beside_gguf(name: str) -> bool:
    return _matches_any(name, BESIDE_GGUF)


def parts_of(name: str) -> list[str]:
    """List all files of the split model that ``name`` is a part of, in order; for a whole file only itself."""
    found = _PART.fullmatch(name)
    count = 0 if found is None else int(found["count"])
    if found is None or not 1 <= count <= MOST_PARTS:
        return [name]
    width = len(found["number"])
    return [f"{found['stem']}-{i:0{width}d}-of-{found['count']}{found['ending']}" for i in range(1, count + 1)]


def whole_stem(name: str) -> str:
    """Return ``name`` without its extension and without the number of a part."""
    found = _PART.fullmatch(name)
    return PurePosixPath(name).stem if found is None else found["stem"]


def missing_parts(names: Collection[str]) -> list[str]:
    """List the parts of split models that ``names`` lacks; the parts of gpt-oss are numbered from 0 on."""
    wanted = {part: None for first in dict.fromkeys(parts_of(name)[0] for name in names) for part in parts_of(first)}
    return [part for part in wanted if part not in names]


def usual_weights(names: Collection[str], *, indexed: bool = False) -> list[str]:
    """Choose the safetensors files of the model among ``names``, without adapters and copies in another format.

    ``indexed``: whether the repository has an index, which names the files itself.
    """
    if WHOLE in names and not indexed:
        return [WHOLE]
    return [name for name in names if _USUAL.fullmatch(name)] or list(names)


def explain_folder(names: Collection[str]) -> str:
    """Explain by its file names why a folder has no model that can be served; empty where they do not show it."""
    has = set(map(base_name, names))
    reasons = []
    if "adapter_config.json" in has:
        reasons.append("adapter_config.json is of an adapter (LoRA), which must be merged into its model first")
    if "params.json" in has and "config.json" not in has:
        reasons.append("params.json is of Mistral's or Meta's own format, which is not read: config.json must be there")
    if "tokenizer.json" not in has:
        others = [name for name in ("tokenizer.model", "spiece.model", "tekken.json", "vocab.json") if name in has]
        if others:
            reasons.append(
                f"{others[0]} is not read: transformers' AutoTokenizer.save_pretrained makes a tokenizer.json of it"
            )
    pickles = sorted(filter(is_pickle, has))
    if pickles and not any(map(is_weights, has)):
        reasons.append(
            f"weights in {pickles[0]} are not read: transformers' save_pretrained makes model.safetensors of it"
        )
    return "; ".join(reasons)


def is_safetensors(name: str) -> bool:
    return base_name(name).endswith(".safetensors")


def is_side_file(name: str) -> bool:
    return _matches_any(name, SIDE_FILES)


def is_weights(name: str) -> bool:
    return is_gguf(name) or is_safetensors(name)


def is_model_file(name: str) -> bool:
    """Whether it may be fetched at all."""
    return is_weights(name) or is_side_file(name)


def is_pickle(name: str) -> bool:
    return _matches_any(name, PICKLES)


def _matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(base_name(name), pattern) for pattern in patterns)
