"""The blobs of an OCI image layout: in a folder, or in one tar archive, as skopeo, buildah and docker write it.

Reference: the OCI image specification, ``image-layout.md``.
"""

import io
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from paternoster_sources.errors import SourceNotFound, UnsafeListing
from paternoster_sources.remote.tar import walk_members

INDEX = "index.json"
_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{64}")


class Blobs(Protocol):
    """Raises :class:`SourceNotFound` for what is not there, and ``OSError``."""

    def open_blob(self, name: str) -> BinaryIO:
        """The file ``index.json`` or ``blobs/sha256/...``, which may be sought in."""
        ...


def open_blobs(path: Path) -> Blobs:
    return Folder(path) if path.is_dir() else Archive(path)


class Folder:
    """The layout's own files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open_blob(self, name: str) -> BinaryIO:
        return _open_plain(self._path / name)


class Archive:
    """Blobs in a tar archive that is not compressed, where its headers place them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, tuple[int, int]] = {}
        with _open_plain(path) as file:
            for member in walk_members(file, os.fstat(file.fileno()).st_size):
                name = member.name.removeprefix("./")
                if name != INDEX and not _BLOB.fullmatch(name):
                    continue
                if not member.isreg() or member.issparse() or name in self._places:
                    raise UnsafeListing(f"{path}: {name} must be a plain file, and there once")
                self._places[name] = member.offset_data, member.size

    def open_blob(self, name: str) -> BinaryIO:
        if name not in self._places:
            raise SourceNotFound(f"{self._path}: there is no {name} in it")
        return io.BufferedReader(_Slice(_open_plain(self._path), *self._places[name]), 2**16)


class _Slice(io.RawIOBase):
    """``size`` bytes of ``file`` from ``first`` on; closes it."""

    def __init__(self, file: BinaryIO, first: int, size: int) -> None:
        self._file, self._first, self._size, self._at = file, first, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._first + self._at)
        data = self._file.read(min(len(buffer), max(0, self._size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_plain(path: Path) -> BinaryIO:
    """A plain file: what is none could keep its reader waiting for ever."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise SourceNotFound(f"{path}: must be a plain file")
    return os.fdopen(number, "rb")
