"""Requests held until a replica of their fleet is ready: bounded by fleet, with a share for each sender."""

from collections.abc import Iterator

from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_http.shares import Shares

Place = tuple[str, str]
"""A model and the uid of its fleet: a model's name may pass to another fleet."""


class HeldRequests:
    """Those of every fleet, each in the order in which they were held first."""

    def __init__(self) -> None:
        self._of: dict[Place, dict[RoutedRequest, None]] = {}

    def __contains__(self, request: RoutedRequest) -> bool:
        return request in self._of.get(_place(request), ())

    def count(self, place: Place) -> int:
        return len(self._of.get(place, ()))

    def places(self) -> list[Place]:
        """Fleets with a held request."""
        return list(self._of)

    def of(self, place: Place) -> Iterator[RoutedRequest]:
        return iter(self._of.get(place, ()))

    def beside(self, request: RoutedRequest) -> int:
        """The number of held requests of its fleet without itself."""
        return self.count(_place(request)) - (request in self)

    def add(self, request: RoutedRequest) -> None:
        """Hold ``request``; one that is held already stays where it is."""
        self._of.setdefault(_place(request), {}).setdefault(request)

    def remove(self, request: RoutedRequest) -> None:
        """Hold ``request`` no longer; nothing happens where it is not held."""
        place = _place(request)
        held = self._of.get(place)
        if held is not None:
            held.pop(request, None)
            if not held:
                del self._of[place]

    def find_evicted(self, request: RoutedRequest) -> RoutedRequest | None:
        """The latest of the sender that holds most places, which gives way to ``request`` where no place is left.

        None where the sender of ``request`` has as many as others.
        """
        others = [each for each in self.of(_place(request)) if each is not request and each.reserved is None]
        shares, party = Shares(len(others), reserve=0), (request.sender,)
        for each in others:
            shares.add((each.sender,), 1)
        holder = next((each for each in shares.find_larger(party) if shares.gives_way(each, party, 1, 1)), None)
        return next((each for each in reversed(others) if (each.sender,) == holder), None)


def _place(request: RoutedRequest) -> Place:
    return request.model, request.fleet
