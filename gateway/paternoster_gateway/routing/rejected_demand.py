"""Requests rejected while their fleet starts: they are demand until they may come again."""

from collections import deque

from paternoster_gateway.routing.held_requests import Place

MAX_REJECTED = 10_000
"""Rejected requests of a fleet that are counted."""


class RejectedDemand:
    """By model and fleet: when each rejected request may come again."""

    def __init__(self) -> None:
        self._again: dict[Place, deque[float]] = {}

    def add(self, place: Place, again: float, most: int) -> None:
        """Count one request until ``again``, and at most ``most`` of its fleet."""
        self._again.setdefault(place, deque(maxlen=max(1, min(most, MAX_REJECTED)))).append(again)

    def count(self, place: Place, now: float) -> int:
        again = self._again.get(place, deque())
        while again and again[0] <= now:
            again.popleft()
        return len(again)

    def list_places(self) -> list[Place]:
        return list(self._again)

    def remove(self, place: Place) -> None:
        """The fleet serves or is gone: what comes again is counted then."""
        del self._again[place]
