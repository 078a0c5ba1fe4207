"""Keys in files, read again as they change: a mounted Secret is a folder of them, which the kubelet updates."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from paternoster_contract.access.keys import digest_key, parse_keys

log = logging.getLogger(__name__)

REREAD_SECONDS = 1.0
LONGEST_FILE = 64 * 1024
"""Bytes: what is longer is no list of keys, and is not read."""


class KeyFiles:
    """The keys of a file, or of all files of a folder in order of their names, as they are now."""

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = Path(path)
        self._clock = clock
        self._read_at = float("-inf")
        self._keys: tuple[str, ...] = ()
        self._digests: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """At most :data:`REREAD_SECONDS` old; empty while there is no file, so that no key is valid."""
        now = self._clock()
        if now - self._read_at >= REREAD_SECONDS:
            self._read_at = now
            keys = self._read()
            if keys != self._keys:
                self._keys, self._digests = keys, tuple(map(digest_key, keys))
        return self._keys

    @property
    def digests(self) -> tuple[str, ...]:
        """Digest of each of :attr:`keys`."""
        return self._digests if self.keys else ()

    def _read(self) -> tuple[str, ...]:
        found: list[str] = []
        for file in self._list_files():
            try:
                with file.open("rb") as opened:
                    content = opened.read(LONGEST_FILE + 1)
                found += parse_keys(content.decode()) if len(content) <= LONGEST_FILE else ()
            except (OSError, UnicodeDecodeError) as error:
                log.warning("%s is not read: %s", file, error)
        return tuple(dict.fromkeys(found))

    def _list_files(self) -> list[Path]:
        """A kubelet keeps the content of the files in hidden folders beside them."""
        try:
            return sorted(file for file in self._path.iterdir() if not file.name.startswith("."))
        except NotADirectoryError:
            return [self._path]
        except OSError as error:
            log.warning("%s is not read: %s", self._path, error)
            return []
