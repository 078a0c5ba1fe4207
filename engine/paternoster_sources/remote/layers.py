"""Layers of an image: which files they come to, laid one over the other, and where the bytes of each are.

Reference: the OCI image specification, ``layer.md``: a layer is a tar archive of what it adds and changes; a file
``.wh.NAME`` in it removes NAME of the layers below, ``.wh..wh..opq`` all of its folder. Pure but for reading ``file``.
"""

import gzip
import hashlib
import re
import sys
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from paternoster_sources import names
from paternoster_sources.errors import NoWeights, UnsafeListing
from paternoster_sources.remote.tar import walk_members

MOST_TIMES, MOST_MORE = 64, 2**30
"""A compressed layer may grow by this factor, and by this many bytes more: weights become hardly twice theirs."""
BLOCK = 2**20
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_LAYER = re.compile(
    r"application/vnd\.(?:oci\.image\.layer(?:\.nondistributable)?\.v1|docker\.image\.rootfs(?:\.foreign)?\.diff)"
    r"\.tar(?:[+.](gzip|zstd))?"
)


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """What a layer has at a path that is no folder."""

    layer: int
    """Number of its layer, the lowest first."""
    offset: int = 0
    """Offset of its first byte in the layer's archive."""
    size: int = 0
    sha256: str = ""
    """Digest of a file that may be a model's; empty for a link, a device, or a file with holes."""


@dataclass(frozen=True, slots=True)
class LayerChanges:
    """What one layer does to those below it; paths without a slash at their ends."""

    removed: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    """Folders of which nothing stays."""
    folders: set[str] = field(default_factory=set)
    entries: dict[str, LayerEntry] = field(default_factory=dict)


def find_compression(media_type: str) -> str | None:
    """``gzip``, ``zstd`` or None; raises :class:`NoWeights` for what is no layer of an image."""
    found = _LAYER.fullmatch(media_type)
    if found is None:
        raise NoWeights(
            f"a layer of type {media_type[:100]!r} is no layer of an image; allowed: tar, alone or with gzip or zstd"
        )
    return found[1]


def open_decompressed(file: BinaryIO, form: str | None) -> BinaryIO:
    """The archive in ``file``, in memory that does not grow with it."""
    if form == "gzip":
        return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]
    if form == "zstd":
        return _import_zstd().ZstdFile(file, "rb")  # type: ignore[no-any-return]
    return file


def scan_layer(file: BinaryIO, form: str | None, size: int, number: int, folders: Iterable[str]) -> LayerChanges:
    """What layer ``number`` has directly in ``folders`` of the image, and does to them; "" is the top.

    ``size``: bytes of the blob. Raises :class:`UnsafeListing` and :class:`TooLarge`.
    """
    changes, wanted = LayerChanges(), tuple(folders)
    archive = open_decompressed(file, form)
    most = size if form is None else MOST_TIMES * size + MOST_MORE
    try:
        for member in walk_members(archive, most):
            _add_member(changes, _path_of(member.name), member, archive, number, wanted)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UnsafeListing(f"a layer cannot be decompressed: {error}") from error
    except Exception as error:
        if form == "zstd" and isinstance(error, _import_zstd().ZstdError):
            raise UnsafeListing(f"a layer cannot be decompressed: {error}") from error
        raise
    return changes


def lay_over(below: dict[str, LayerEntry], changes: LayerChanges) -> dict[str, LayerEntry]:
    """What is there after a layer. A path that is no folder any more has nothing below it."""
    gone = changes.removed | changes.entries.keys()
    remaining = {
        path: entry
        for path, entry in below.items()
        if path not in gone
        and path not in changes.folders
        and not any(parent in gone or parent in changes.emptied for parent in _list_parents(path))
    }
    return {**remaining, **changes.entries}


def _path_of(name: str) -> str:
    """Path that the image has; empty for its top."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafeListing(f"a layer has a file {name[:200]!r}: must have no '..' in its name")
    return "/".join(parts)


def _list_parents(path: str) -> Iterator[str]:
    """The folders above, the top as the last."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _add_member(
    changes: LayerChanges, path: str, member: tarfile.TarInfo, archive: BinaryIO, number: int, folders: tuple[str, ...]
) -> None:
    parent, _, name = path.rpartition("/")
    if name == _OPAQUE:
        if _is_above(parent, folders):
            changes.emptied.add(parent)
        return
    removes = name.startswith(_WHITEOUT)
    if removes:
        path = f"{parent}/{name.removeprefix(_WHITEOUT)}".removeprefix("/")
    if parent not in folders and not _is_above(path, folders):
        return
    if removes:
        changes.removed.add(path)
    elif member.isdir():
        changes.folders.add(path)
        changes.entries.pop(path, None)
    elif member.isreg() and not member.issparse():
        digest = _hash_member(archive, member) if names.is_model_file(name) else ""
        changes.entries[path] = LayerEntry(number, member.offset_data, member.size, digest)
    else:
        changes.entries[path] = LayerEntry(number)


def _is_above(path: str, folders: tuple[str, ...]) -> bool:
    """Whether it is one of ``folders`` or has one below it."""
    return not path or any(f"{folder}/".startswith(f"{path}/") for folder in folders)


def _hash_member(archive: BinaryIO, member: tarfile.TarInfo) -> str:
    left, total = member.size, hashlib.sha256()
    while left:
        data = archive.read(min(BLOCK, left))
        if not data:
            raise UnsafeListing(f"a layer ends within {member.name[:200]!r}")
        total.update(data)
        left -= len(data)
    return total.hexdigest()


def _import_zstd() -> Any:
    """The standard library's from Python 3.14 on, and the same for those before."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
