"""Which replicas get no requests for the moment, and which only where there is no other."""

import math
from collections.abc import Collection

from paternoster_gateway.routing.limits import EJECTION_SECONDS, FULL_SECONDS


class ReplicaStates:
    """Ejected, full and hung replicas by URL: pods of two namespaces may have one name."""

    def __init__(self) -> None:
        self._ejected_until: dict[str, float] = {}
        self._full_until: dict[str, float] = {}
        self._hung: set[str] = set()

    @property
    def hung(self) -> Collection[str]:
        """Replicas that answer no probe."""
        return self._hung

    def eject(self, url: str, now: float) -> None:
        """Send ``url`` nothing for :data:`EJECTION_SECONDS`."""
        self._ejected_until[url] = now + EJECTION_SECONDS

    def mark_full(self, url: str, now: float) -> None:
        """Prefer other replicas to ``url`` for :data:`FULL_SECONDS`."""
        self._full_until[url] = now + FULL_SECONDS

    def set_hung(self, url: str, hung: bool) -> None:
        """Send ``url`` nothing while it is ``hung``."""
        if hung:
            self._hung.add(url)
        else:
            self._hung.discard(url)

    def find_ejected(self, now: float) -> Collection[str]:
        return _find_unexpired(self._ejected_until, now)

    def next_return(self, now: float) -> float:
        """When the next ejected replica gets requests again; infinite where none is ejected."""
        self.find_ejected(now)
        return min(self._ejected_until.values(), default=math.inf)

    def find_full(self, now: float) -> Collection[str]:
        return _find_unexpired(self._full_until, now)


def _find_unexpired(until: dict[str, float], now: float) -> Collection[str]:
    """The URLs whose time has not passed; the others are removed."""
    for url in [url for url, end in until.items() if end <= now]:
        del until[url]
    return until.keys()
