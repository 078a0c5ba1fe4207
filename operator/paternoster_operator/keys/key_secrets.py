"""Keys in Secrets, as they were a moment ago; read by name, since whoever may watch Secrets may list them all."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paternoster_contract.access.keys import parse
from paternoster_operator.cluster.port import Cluster, ClusterError, Key

log = logging.getLogger(__name__)

REREAD_SECONDS = 30.0
"""A kubelet takes up to a minute or two to bring a changed Secret to its pods; nobody gains from asking more often."""
ROOT_FIELD = "key"
"""Field of a root key's Secret."""
ROOT_BYTES = 32


@dataclass(slots=True)
class _Entry:
    data: dict[str, str] | None = None
    """What the Secret held; None while there is none."""
    read_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class KeySecrets:
    """What :class:`Cluster` says of Secrets, remembered for :data:`REREAD_SECONDS`."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._entries: dict[Key, _Entry] = {}

    async def keys(self, secret: Key, name: str) -> tuple[str, ...] | None:
        """The keys in field ``name``; None where there is no such Secret or field.

        Raises :class:`ClusterError` where it was never read: what was, stands while the cluster does not answer.
        """
        text = await self.text(secret, name)
        return None if text is None else parse(text)

    async def text(self, secret: Key, name: str) -> str | None:
        """What field ``name`` holds, as :meth:`keys`."""
        data = await self._data(secret)
        return None if data is None else data.get(name)

    async def root(self, secret: Key) -> tuple[str, ...]:
        """Root keys, the first to send and all to accept; one is made where there is none. Raises as :meth:`keys`."""
        keys = await self.keys(secret, ROOT_FIELD)
        if keys:
            return keys
        await self._cluster.create_secret(secret, {ROOT_FIELD: secrets.token_hex(ROOT_BYTES)})
        self._entries.pop(secret, None)
        keys = await self.keys(secret, ROOT_FIELD)
        if not keys:
            raise ClusterError(f"Secret {secret} has no key in its field {ROOT_FIELD!r}: write one, or delete it")
        return keys

    async def _data(self, secret: Key) -> dict[str, str] | None:
        entry = self._entries.setdefault(secret, _Entry())
        async with entry.lock:
            if self._clock() - entry.read_at >= REREAD_SECONDS:
                never = entry.read_at == float("-inf")
                try:
                    found = await self._cluster.secret(secret)
                except ClusterError as error:
                    if never:
                        raise
                    log.warning("Secret %s: %s; going on with what it held", secret, error)
                else:
                    entry.data = None if found is None else dict(found)
                entry.read_at = self._clock()
        return entry.data
