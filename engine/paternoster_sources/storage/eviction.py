"""Which models leave the cache so that another fits. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One model in the cache, whole or begun."""

    key: str
    size: int
    """Bytes on disk."""
    used: float
    """When it was last used: seconds since the epoch."""
    in_use: bool = False
    """Or being fetched."""
    coming: int = 0
    """Bytes that are being fetched and not on disk yet."""


def choose_evicted(entries: Iterable[CacheEntry], need: int, free: int, limit: int) -> list[CacheEntry]:
    """The least recently used entries without which ``need`` more bytes fit, in the order in which they go.

    They must fit both below ``limit`` bytes in all and into ``free`` bytes of the disk that no other download is about
    to fill. Where even that is not enough, all that are not in use are given.
    """
    candidates = list(entries)
    missing = max(sum(entry.size + entry.coming for entry in candidates) + need - limit, need - free)
    chosen: list[CacheEntry] = []
    for entry in sorted(candidates, key=lambda entry: (entry.used, entry.key)):
        if missing <= 0:
            break
        if not entry.in_use and entry.size > 0:
            chosen.append(entry)
            missing -= entry.size
    return chosen
