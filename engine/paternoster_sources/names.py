"""Which names of files are believed, and which files are a model's."""

import re
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
_SPLIT_GGUF = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


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


def base(name: str) -> str:
    return PurePosixPath(name).name


def is_top(name: str) -> bool:
    return "/" not in name


def is_gguf(name: str) -> bool:
    return base(name).endswith(".gguf")


def is_split_gguf(name: str) -> bool:
    return _SPLIT_GGUF.search(name) is not None


def is_safetensors(name: str) -> bool:
    return base(name).endswith(".safetensors")


def is_side_file(name: str) -> bool:
    return _matches(name, SIDE_FILES)


def is_weights(name: str) -> bool:
    return is_gguf(name) or is_safetensors(name)


def is_model_file(name: str) -> bool:
    """Whether it may be fetched at all."""
    return is_weights(name) or is_side_file(name)


def is_pickle(name: str) -> bool:
    return _matches(name, PICKLES)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(base(name), pattern) for pattern in patterns)
