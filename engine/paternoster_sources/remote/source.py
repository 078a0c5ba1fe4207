"""What the downloader needs of a place that has models: a listing, and a file's bytes from some offset on."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from paternoster_sources.plan import Listing, RemoteFile


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes of a file from ``start`` on, perhaps not to its end."""

    start: int
    """What was asked for, or 0 where a server gives no ranges."""
    chunks: Iterator[bytes]


class Source(Protocol):
    """Every method raises :class:`SourceError`, or :class:`Interrupted` for what another attempt may mend."""

    def list(self) -> Listing: ...

    def open_stream(self, file: RemoteFile, start: int) -> AbstractContextManager[Stream]: ...

    def close(self) -> None: ...
