"""Bearer keys in the files of a mounted Secret, compared in constant time."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

LONGEST_FILE = 64 * 1024
"""Bytes: what is longer is no list of keys, and is not read."""
LONGEST_HEADER = 4096
"""Bytes of an Authorization header that is compared at all."""


def read_keys(path: Path) -> list[str]:
    """The keys of a file, or of all files of a folder, one a line; blank lines are none.

    They are read at each call, as a kubelet updates them in place; a file that cannot be read has no keys.
    """
    keys: list[str] = []
    for file in _key_files(path):
        try:
            with file.open("rb") as opened:
                content = opened.read(LONGEST_FILE + 1)
        except OSError:
            continue
        if len(content) <= LONGEST_FILE:
            lines = (line.strip() for line in content.decode(errors="replace").splitlines())
            keys += [line for line in lines if line]
    return keys


def has_valid_key(headers: Iterable[tuple[bytes, bytes]], keys: Iterable[str]) -> bool:
    """Whether the one Authorization header among ``headers`` bears one of ``keys``; every key is compared."""
    found = [value for name, value in headers if name.lower() == b"authorization"]
    if len(found) != 1 or len(found[0]) > LONGEST_HEADER:
        return False
    scheme, _, key = found[0].partition(b" ")
    if scheme.lower() != b"bearer":
        return False
    # Digests are of one length, so that the comparison reveals none of a key's.
    sent = hashlib.sha256(key.strip()).digest()
    matches = [hmac.compare_digest(sent, hashlib.sha256(each.encode()).digest()) for each in keys]
    return any(matches)


def _key_files(path: Path) -> list[Path]:
    """A kubelet keeps the content of the files in hidden folders beside them."""
    try:
        return sorted(file for file in path.iterdir() if not file.name.startswith("."))
    except NotADirectoryError:
        return [path]
    except OSError:
        return []
