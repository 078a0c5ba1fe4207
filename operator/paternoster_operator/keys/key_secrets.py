"""Keys in Secrets, as they were a moment ago.

They are read by name, since the right to watch Secrets includes listing them all.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from paternoster_contract.access.keys import parse_keys
from paternoster_operator.cluster.port import Cluster, ClusterError, Key
from paternoster_operator.keys.client_keys import MAX_KEYS, KeyList, read_key_list

log = logging.getLogger(__name__)

REREAD_SECONDS = 30.0
"""A kubelet takes up to a minute or two to bring a changed Secret to its pods; reading more often gains nothing."""
MAX_READ = MAX_KEYS + 1
"""Keys that are read of one field: one more than a fleet may have shows that there are too many."""
ROOT_FIELD = "key"
"""Field of a root key's Secret."""
ROOT_BYTES = 32


KEPT_SECONDS = 600.0
"""What no fleet asked for this long is dropped."""

Reader = Callable[[str], Any]
"""Pure, and bounded in time whatever the text: a tenant writes it. It runs in a worker thread."""


@dataclass(slots=True)
class _Entry:
    value: Any = None
    """What the reader made of the field; None while there is no such Secret or field."""
    digest: bytes = b""
    """Digest of the text that was read: the text itself may have a megabyte, and is not kept."""
    read_at: float = float("-inf")
    asked_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class KeySecrets:
    """What :class:`Cluster` says of Secrets, remembered for :data:`REREAD_SECONDS`."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._entries: dict[tuple[Key, str, Reader], _Entry] = {}
        self._swept_at = clock()

    async def read_keys(self, secret: Key, name: str) -> tuple[str, ...] | None:
        """The keys in field ``name``, at most :data:`MAX_READ`; None where there is no such Secret or field.

        Raises :class:`ClusterError` where it was never read: what was, stands while the cluster does not answer.
        """
        found: tuple[str, ...] | None = await self._read_value(secret, name, _parse_keys)
        return found

    async def key_list(self, secret: Key, name: str) -> KeyList | None:
        """The list of hashed keys in field ``name``, as :meth:`read_keys`."""
        found: KeyList | None = await self._read_value(secret, name, read_key_list)
        return found

    async def read_root(self, secret: Key) -> tuple[str, ...]:
        """Root keys, the first to send and all to accept; one is made where there is none.

        Raises as :meth:`read_keys`.
        """
        keys = await self.read_keys(secret, ROOT_FIELD)
        if keys:
            return keys
        await self._cluster.create_secret(secret, {ROOT_FIELD: secrets.token_hex(ROOT_BYTES)})
        self._entries.pop((secret, ROOT_FIELD, _parse_keys), None)
        keys = await self.read_keys(secret, ROOT_FIELD)
        if not keys:
            raise ClusterError(f"Secret {secret} has no key in its field {ROOT_FIELD!r}: write one, or delete it")
        return keys

    async def _read_value(self, secret: Key, name: str, reader: Reader) -> Any:
        now = self._clock()
        if now - self._swept_at >= KEPT_SECONDS:
            self._entries = {each: e for each, e in self._entries.items() if now - e.asked_at < KEPT_SECONDS}
            self._swept_at = now
        entry = self._entries.setdefault((secret, name, reader), _Entry())
        entry.asked_at = now
        async with entry.lock:
            if self._clock() - entry.read_at >= REREAD_SECONDS:
                await self._refresh_value(secret, name, reader, entry)
        return entry.value

    async def _refresh_value(self, secret: Key, name: str, reader: Reader, entry: _Entry) -> None:
        try:
            found = await self._cluster.read_secret(secret)
        except ClusterError as error:
            if entry.read_at == float("-inf"):
                raise
            log.warning("Secret %s: %s; the operator goes on with what the Secret held", secret, error)
        else:
            text = (found or {}).get(name)
            digest = b"" if text is None else sha256(text.encode(errors="surrogatepass")).digest()
            if digest != entry.digest:
                entry.value = None if text is None else await asyncio.to_thread(reader, text)
                entry.digest = digest
        entry.read_at = self._clock()


def _parse_keys(text: str) -> tuple[str, ...]:
    return parse_keys(text)[:MAX_READ]
