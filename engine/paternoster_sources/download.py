"""One file brought to disk: from where it stopped, again after a break, and hashed on the way."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from paternoster_sources.digest import BLOCK, make_hasher
from paternoster_sources.errors import Corrupted, Interrupted, NoSpace
from paternoster_sources.plan import Algorithm, Digest, RemoteFile
from paternoster_sources.remote.source import Source
from paternoster_sources.retry import DownloadStopped, RetryPauses

PROGRESS = 8 * 2**20
"""Bytes after which failures are counted anew: a connection that gives less is no connection."""


class Download:
    """``advance`` gets how many bytes more there are, fewer after a new beginning, and whether they came now."""

    def __init__(
        self,
        source: Source,
        file: RemoteFile,
        path: Path,
        advance: Callable[[int, bool], None],
        *,
        retry: RetryPauses | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        self._source, self._file, self._path, self._advance = source, file, path, advance
        self._retry = retry or RetryPauses()
        self._stopping = stopping or threading.Event()
        self._have = 0
        # Where a source gives no digest, what came is recorded.
        self._algorithm: Algorithm = "sha256" if file.digest is None else file.digest.algorithm
        self._hash = make_hasher(self._algorithm, file.size)

    def run(self) -> Digest:
        """Leaves the whole file at ``path``, and returns the digest of its bytes.

        Raises :class:`SourceError`; after :class:`Corrupted` the file is gone, after anything else what came is kept.
        """
        with _name_full_disk(self._path), _open_partial(self._path) as out:
            resumed = self._resume(out)
            try:
                self._fetch(out)
                if resumed and not self._is_right:
                    # What lay here from before may be what is wrong.
                    self._restart(out)
                    self._fetch(out)
                self._check_file()
            except Corrupted:
                self._path.unlink(missing_ok=True)
                raise
            out.flush()
            os.fsync(out.fileno())
        return Digest(self._algorithm, self._hash.hexdigest())

    def _resume(self, out: BinaryIO) -> bool:
        """Take up what an earlier attempt left; whether there was anything."""
        if not self._joins or os.fstat(out.fileno()).st_size > self._file.size:
            out.truncate(0)
        while block := out.read(BLOCK):
            self._count(block, fresh=False)
        return self._have > 0

    def _fetch(self, out: BinaryIO) -> None:
        failed, counted_from = 0, self._have
        while self._have < self._file.size:
            try:
                self._download_once(out)
            except Interrupted as error:
                failed = 1 if self._have - counted_from >= PROGRESS else failed + 1
                counted_from = self._have
                self._retry.wait(failed, error, self._file.name, self._stopping)
                if not self._joins:
                    self._restart(out)

    def _download_once(self, out: BinaryIO) -> None:
        with self._source.open_stream(self._file, self._have) as stream:
            if stream.start != self._have:
                self._restart(out)
            for chunk in stream.chunks:
                if self._stopping.is_set():
                    raise DownloadStopped
                if self._have + len(chunk) > self._file.size:
                    raise Corrupted(f"{self._file.name}: more bytes came than the {self._file.size} that were listed")
                out.write(chunk)
                self._count(chunk, fresh=True)
        if self._have < self._file.size:
            raise Interrupted(f"the connection ended after {self._have} of {self._file.size} bytes")

    def _count(self, data: bytes, fresh: bool) -> None:
        self._hash.update(data)
        self._have += len(data)
        self._advance(len(data), fresh)

    def _restart(self, out: BinaryIO) -> None:
        out.seek(0)
        out.truncate(0)
        self._advance(-self._have, False)
        self._have = 0
        self._hash = make_hasher(self._algorithm, self._file.size)

    @property
    def _joins(self) -> bool:
        """Whether two parts are known to be of the same file: by a hash of the whole, or by what names this content."""
        return self._file.digest is not None or self._file.version is not None

    @property
    def _is_right(self) -> bool:
        return self._file.digest is None or self._hash.hexdigest() == self._file.digest.value

    def _check_file(self) -> None:
        if not self._is_right:
            assert self._file.digest is not None
            raise Corrupted(
                f"{self._file.name}: the {self._file.digest.algorithm} of what came is {self._hash.hexdigest()}: "
                f"must be {self._file.digest.value}"
            )


@contextmanager
def _open_partial(path: Path) -> Iterator[BinaryIO]:
    """For reading and writing, made if it is not there; a link is not followed."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(number, "r+b") as file:
        yield file


@contextmanager
def _name_full_disk(path: Path) -> Iterator[None]:
    """A full disk has its own reason."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(f"{path.parent}: no space left while {path.name} was written") from error
        raise
