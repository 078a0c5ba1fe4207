"""A tar archive's headers, one after the other, from a file that may only be read forward, in bounded memory."""

import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from paternoster_contract.error_text import error_text
from paternoster_sources.errors import SourceError, TooLarge, UnsafeListing

MOST_MEMBERS = 1_000_000
LONGEST_HEADER = 2**20
"""Bytes of what is read at once: a long name, or a member's fields beside its header."""


def walk_members(file: BinaryIO, most: int) -> Iterator[tarfile.TarInfo]:
    """Every member; the file is then where its bytes begin, and the consumer may read those.

    ``most``: bytes that the archive may have. Raises :class:`UnsafeListing` for what is none, and
    :class:`TooLarge`. Errors of a decompressor that ``file`` is are its own.
    """
    try:
        with tarfile.TarFile(fileobj=_Forward(file), mode="r") as archive:  # type: ignore[arg-type]
            count = 0
            while (member := archive.next()) is not None:
                count += 1
                if member.size < 0:
                    raise UnsafeListing(f"a file in a tar archive has {member.size} bytes")
                if count > MOST_MEMBERS or member.offset_data + member.size > most:
                    raise TooLarge(f"a tar archive has more than {MOST_MEMBERS} files or {most} bytes")
                yield member
                # It would keep all that it has seen.
                archive.members = []  # type: ignore[attr-defined]
    except SourceError:
        raise
    except (tarfile.TarError, RecursionError, ValueError) as error:
        raise UnsafeListing(f"a tar archive cannot be read: {error_text(error)}") from error


class _Forward:
    """What is read of a file: little at once, and nothing twice."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LONGEST_HEADER:
            raise UnsafeListing(f"a tar archive has a header of {size} bytes: must be at most {LONGEST_HEADER}")
        return self._file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        if position < self._file.tell() or whence:
            raise UnsafeListing("a tar archive whose members overlap")
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()
