"""What entered and left the prefix cache, in order; recorded only where something reads it."""

from collections.abc import Sequence
from dataclasses import dataclass

KEY_BYTES = 16
"""Bytes of the digest that a key begins with; keys of layer groups after the first have their number behind it."""


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Full blocks of one layer group that follow one another in a sequence and became cached."""

    keys: tuple[bytes, ...]
    """Digest of each block, a chain over all tokens before it."""
    parent: bytes | None
    """Digest of the block before the first; None at the beginning of a sequence."""
    tokens: tuple[int, ...]
    """Tokens of all these blocks, in order."""
    scope: bytes
    """Digest of the tenant and salt that alone find these blocks; empty where everyone does."""
    group: int


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks of one layer group whose content is gone."""

    keys: tuple[bytes, ...]
    group: int


@dataclass(frozen=True, slots=True)
class CacheCleared:
    """Every block is gone."""


CacheEvent = BlocksStored | BlocksRemoved | CacheCleared


class CacheEvents:
    """The events since the last :meth:`drain`."""

    def __init__(self) -> None:
        self._events: list[CacheEvent] = []
        self._removed: list[bytes] = []

    def record_stored(
        self, keys: Sequence[bytes], parent: bytes | None, tokens: Sequence[int], scope: bytes, group: int
    ) -> None:
        self._end_removals()
        self._events.append(BlocksStored(tuple(keys), parent, tuple(tokens), scope, group))

    def record_removed(self, key: bytes) -> None:
        """``key``: as in the block pool."""
        self._removed.append(key)

    def record_cleared(self) -> None:
        self._removed.clear()
        self._events.append(CacheCleared())

    def drain(self) -> list[CacheEvent]:
        """The events in their order; they are forgotten here."""
        self._end_removals()
        events, self._events = self._events, []
        return events

    def _end_removals(self) -> None:
        """Blocks that were removed one after another are one event for each group."""
        if not self._removed:
            return
        groups: dict[int, list[bytes]] = {}
        for key in self._removed:
            groups.setdefault(key[KEY_BYTES] if len(key) > KEY_BYTES else 0, []).append(key[:KEY_BYTES])
        self._events += [BlocksRemoved(tuple(keys), group) for group, keys in groups.items()]
        self._removed.clear()
