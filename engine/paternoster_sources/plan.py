"""What to fetch, decided from what a source lists, before anything is written. Pure."""

import hashlib
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from paternoster_sources import names
from paternoster_sources.address import Address
from paternoster_sources.errors import (
    AmbiguousWeights,
    NoWeights,
    SourceNotFound,
    TooLarge,
    UnsafeListing,
    UnsafeWeights,
)

MOST_LISTED = 100_000
MOST_FILES = 2048
LARGEST_FILE = 2**40
LARGEST_MODEL = 8 * 2**40
LARGEST_SIDE_FILE = 256 * 2**20
"""Bytes of a file that is no weights: twice what an engine reads of the largest."""
SHOWN = 20
"""Names in a message."""

Algorithm = Literal["sha256", "git-sha1", "md5"]
_HEX: dict[Algorithm, int] = {"sha256": 64, "git-sha1": 40, "md5": 32}


@dataclass(frozen=True, slots=True)
class Digest:
    """What a file's bytes must hash to. ``git-sha1`` is of a git blob: its size is hashed before its bytes."""

    algorithm: Algorithm
    value: str

    def __post_init__(self) -> None:
        if not re.fullmatch(f"[0-9a-f]{{{_HEX[self.algorithm]}}}", self.value):
            raise UnsafeListing(f"the source gives a {self.algorithm} {self.value[:80]!r}: must be in hexadecimal")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the source names it, relative to the folder that the address names."""

    name: str
    size: int
    digest: Digest | None = None
    version: str | None = None
    """Entity tag of these very bytes, where a source states one."""


@dataclass(frozen=True, slots=True)
class Listing:
    files: tuple[RemoteFile, ...]
    revision: str = ""
    """The commit that the files are of; empty where a source has none."""


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """Files to fetch, all into one folder under the last component of their names."""

    address: Address
    revision: str
    format: Literal["gguf", "safetensors"]
    files: tuple[RemoteFile, ...]

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files)

    @property
    def key(self) -> str:
        """Name of this very content in the cache: the same files give the same name, others another one."""
        place = [self.address.scheme, self.address.place, self.address.prefix, self.revision]
        content = json.dumps([place, [asdict(file) for file in self.files]], sort_keys=True)
        readable = re.sub(r"[^A-Za-z0-9._-]+", "--", f"{self.address.scheme}-{self.address.place}")[:100]
        return f"{readable}-{hashlib.sha256(content.encode()).hexdigest()[:20]}"


def make_plan(address: Address, listing: Listing, *, most_adapter_bytes: int | None = None) -> FetchPlan:
    """Choose the files of one model, or with ``most_adapter_bytes`` of an adapter that has no more.

    Raises :class:`SourceNotFound`, :class:`NoWeights`, :class:`UnsafeWeights`, :class:`AmbiguousWeights`,
    :class:`TooLarge` and :class:`UnsafeListing`.
    """
    files = _check_files(address, listing.files)
    if most_adapter_bytes is None:
        form, chosen = _choose_format(address, files)
        _check_sizes(address, chosen, LARGEST_MODEL)
    else:
        form, chosen = "safetensors", _choose_adapter(address, files)
        _check_sizes(address, chosen, most_adapter_bytes)
    return FetchPlan(address, listing.revision, form, tuple(sorted(chosen, key=lambda file: file.name)))


def _check_files(address: Address, files: Iterable[RemoteFile]) -> list[RemoteFile]:
    seen: dict[str, RemoteFile] = {}
    for count, file in enumerate(files):
        if count >= MOST_LISTED:
            raise TooLarge(f"model {address.text!r}: the source lists more than {MOST_LISTED} files")
        if not names.is_model_file(file.name):
            # Never fetched, so that its name may be as it likes.
            seen[file.name] = file
            continue
        names.check_name(file.name)
        if file.name in seen:
            raise UnsafeListing(f"model {address.text!r}: the source lists {file.name!r} twice")
        if file.size < 0:
            raise UnsafeListing(f"model {address.text!r}: {file.name!r} is said to have {file.size} bytes")
        seen[file.name] = file
    return list(seen.values())


def _choose_format(
    address: Address, files: list[RemoteFile]
) -> tuple[Literal["gguf", "safetensors"], list[RemoteFile]]:
    ggufs = [file for file in files if names.is_gguf(file.name)]
    if address.file is not None:
        if all(file.name != address.file for file in ggufs):
            has = f"it has {_format_list(ggufs)}" if ggufs else "it has no .gguf file"
            raise SourceNotFound(f"model {address.text!r}: there is no file {address.file!r}; {has}")
        return "gguf", _find_parts(address, address.file, ggufs)
    top = [file for file in files if names.is_top(file.name)]
    weights = [file for file in top if names.is_safetensors(file.name)]
    if weights and any(file.name == "config.json" for file in top):
        # Some repositories carry the same weights a second time under another name, or adapters beside them.
        indexed = any(file.name == names.INDEX for file in top)
        usual = names.usual_weights([file.name for file in weights], indexed=indexed)
        _check_whole(address, usual)
        chosen = [file for file in weights if file.name in usual]
        return "safetensors", chosen + [file for file in top if names.is_side_file(file.name)]
    models = dict.fromkeys(names.parts_of(file.name)[0] for file in ggufs if not names.is_beside_gguf(file.name))
    if len(models) > 1:
        raise AmbiguousWeights(
            f"model {address.text!r}: has {len(models)} .gguf files and no safetensors; add one to the "
            f"address: {_format_list(models)}"
        )
    if models:
        return "gguf", _find_parts(address, next(iter(models)), ggufs)
    why = names.explain_folder([file.name for file in top])
    why = f"; {why}" if why else ""
    if weights:
        raise NoWeights(
            f"model {address.text!r}: has {_format_list(weights)}, but no config.json that says of what{why}"
        )
    pickles = [file for file in files if names.is_pickle(file.name)]
    if pickles:
        raise UnsafeWeights(
            f"model {address.text!r}: has its weights only as {_format_list(pickles)}, in formats that run code when "
            f"they are read or that are not read here; allowed: *.safetensors with config.json, or a .gguf file{why}"
        )
    if not files:
        raise SourceNotFound(f"model {address.text!r}: there is nothing")
    raise NoWeights(
        f"model {address.text!r}: has no weights among {_format_list(files)}; allowed: *.safetensors with config.json "
        f"in its top folder, or a .gguf file{why}"
    )


def _choose_adapter(address: Address, files: Iterable[RemoteFile]) -> list[RemoteFile]:
    """The two files of an adapter, whatever else its folder has: a tokenizer, or the model that it is for."""
    chosen = {file.name: file for file in files if file.name in names.ADAPTER_FILES}
    if address.file is not None or len(chosen) < len(names.ADAPTER_FILES):
        lacks = [name for name in names.ADAPTER_FILES if name not in chosen]
        lacking = f"has no {_format_list(lacks)}" if lacks else f"names the file {address.file!r}"
        raise NoWeights(
            f"model {address.text!r}: {lacking}: must be a folder with an adapter that PEFT wrote, "
            f"{' and '.join(names.ADAPTER_FILES)}"
        )
    return list(chosen.values())


def _find_parts(address: Address, name: str, ggufs: list[RemoteFile]) -> list[RemoteFile]:
    """Return the file ``name``, or all files of the split model that it is a part of."""
    parts = names.parts_of(name)
    found = [file for file in ggufs if file.name in parts]
    _check_whole(address, [file.name for file in found])
    return found


def _check_whole(address: Address, chosen: Collection[str]) -> None:
    if missing := names.missing_parts(chosen):
        raise NoWeights(
            f"model {address.text!r}: has {_format_list(chosen)}, but not {_format_list(missing)}: must have every part"
        )


def _check_sizes(address: Address, files: list[RemoteFile], most_bytes: int) -> None:
    if len(files) > MOST_FILES:
        raise TooLarge(f"model {address.text!r}: has {len(files)} files: must be at most {MOST_FILES}")
    for file in files:
        weights = names.is_weights(file.name)
        if file.size == 0 and (weights or file.name.endswith(".json")):
            raise NoWeights(f"model {address.text!r}: {file.name!r} has 0 bytes: must have at least 1")
        largest = LARGEST_FILE if weights else LARGEST_SIDE_FILE
        if file.size > largest:
            raise TooLarge(f"model {address.text!r}: {file.name!r} has {file.size} bytes: must be at most {largest}")
    total = sum(file.size for file in files)
    if total > most_bytes:
        raise TooLarge(f"model {address.text!r}: has {total} bytes: must be at most {most_bytes}")


def _format_list(files: Iterable[RemoteFile | str]) -> str:
    listed = [file if isinstance(file, str) else file.name for file in files]
    shown = ", ".join(listed[:SHOWN])
    return shown if len(listed) <= SHOWN else f"{shown} and {len(listed) - SHOWN} more"
