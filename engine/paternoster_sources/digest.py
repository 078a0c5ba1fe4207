"""Digests of files: while they are fetched, and where they lie."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from paternoster_sources.plan import Algorithm, Digest
from paternoster_sources.retry import DownloadStopped

BLOCK = 2**20


class Hasher(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def make_hasher(algorithm: Algorithm, size: int) -> Hasher:
    """``size``: bytes of the whole file, which a git blob's hash begins with."""
    if algorithm == "git-sha1":
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    if algorithm == "md5":
        return hashlib.md5(usedforsecurity=False)
    return hashlib.sha256()


def hash_file(path: Path, algorithm: Algorithm, advance: Callable[[int], None], stopping: threading.Event) -> Digest:
    """The digest of the file's bytes; ``advance`` gets how many more were read. Raises :class:`DownloadStopped`."""
    hasher = make_hasher(algorithm, path.stat().st_size)
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            if stopping.is_set():
                raise DownloadStopped
            hasher.update(block)
            advance(len(block))
    return Digest(algorithm, hasher.hexdigest())
