"""Bearer keys: how they are written, compared, derived from one another and read again.

A key file has one key a line, so that two are valid while one takes the other's place: whoever checks takes any of
them, whoever sends takes the first. A mounted Secret is a folder of such files; the kubelet replaces their content
without a restart.
"""

import hmac
import logging
import time
from collections.abc import Callable, Collection
from hashlib import sha256
from pathlib import Path

log = logging.getLogger(__name__)

REREAD_SECONDS = 1.0
LONGEST_FILE = 64 * 1024
"""Bytes: what is longer is no list of keys, and is not read."""

GATEWAY_TO_ENGINE = "gateway-to-engine"
OPERATOR_TO_ENGINE = "operator-to-engine"
GATEWAY_TO_OPERATOR = "gateway-to-operator"


def derive(root: str, purpose: str, subject: str = "") -> str:
    """The key for one purpose and subject, such as a fleet's uid: HMAC-SHA256 (RFC 2104) in hex.

    Who has ``root`` can make every such key; who has one of them learns nothing of the others.
    """
    return hmac.new(root.encode(), f"{purpose}/{subject}".encode(), sha256).hexdigest()


def digest(key: str) -> str:
    """What is told and compared in place of a key: SHA-256 in hex."""
    return sha256(key.encode()).hexdigest()


def matches(key: str, digests: Collection[str]) -> bool:
    """Whether ``key`` is one of those whose digests these are."""
    given = digest(key)
    return any(hmac.compare_digest(given, known) for known in digests)


def bearer(authorization: str) -> str:
    """The key of an ``Authorization`` header (RFC 6750), empty where it has none."""
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def parse(text: str) -> tuple[str, ...]:
    """The keys of a file, in order; blank lines are none."""
    return tuple(dict.fromkeys(key for line in text.splitlines() if (key := line.strip())))


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
        """At most :data:`REREAD_SECONDS` old; empty while there is no file, when nobody is let in."""
        now = self._clock()
        if now - self._read_at >= REREAD_SECONDS:
            self._read_at = now
            keys = self._read()
            if keys != self._keys:
                self._keys, self._digests = keys, tuple(map(digest, keys))
        return self._keys

    @property
    def digests(self) -> tuple[str, ...]:
        """Of each of :attr:`keys`."""
        return self._digests if self.keys else ()

    def _read(self) -> tuple[str, ...]:
        found: list[str] = []
        for file in self._files():
            try:
                with file.open("rb") as opened:
                    content = opened.read(LONGEST_FILE + 1)
                found += parse(content.decode()) if len(content) <= LONGEST_FILE else ()
            except (OSError, UnicodeDecodeError) as error:
                log.warning("%s is not read: %s", file, error)
        return tuple(dict.fromkeys(found))

    def _files(self) -> list[Path]:
        """A kubelet keeps the content of the files in hidden folders beside them."""
        try:
            return sorted(file for file in self._path.iterdir() if not file.name.startswith("."))
        except NotADirectoryError:
            return [self._path]
        except OSError as error:
            log.warning("%s is not read: %s", self._path, error)
            return []
