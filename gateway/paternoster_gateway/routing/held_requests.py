"""Requests held until a replica of their fleet has a place: bounded by fleet, with a share for each sender."""

from collections.abc import Collection, Iterator

from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_gateway.routing.fair_queue import FairQueue
from paternoster_http.shares import Shares

Place = tuple[str, str]
"""A model and the uid of its fleet: a model's name may pass to another fleet."""


class HeldRequests:
    """The queue of each fleet."""

    def __init__(self) -> None:
        self._queues: dict[Place, FairQueue] = {}

    def __contains__(self, request: RoutedRequest) -> bool:
        queue = self._queues.get(_place_of(request))
        return queue is not None and request in queue

    def count(self, place: Place) -> int:
        return len(self._queues.get(place, ()))

    def list_places(self) -> list[Place]:
        """Fleets with a held request."""
        return [place for place, queue in self._queues.items() if len(queue)]

    def iterate_held(self, place: Place) -> Iterator[RoutedRequest]:
        """Next to be sent first."""
        return iter(self._queues.get(place, ()))

    def queue_of(self, request: RoutedRequest) -> FairQueue:
        """The queue of its fleet, which also counts what senders are served."""
        place = _place_of(request)
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = FairQueue()
        return queue

    def count_others(self, request: RoutedRequest) -> int:
        """The number of held requests of its fleet without itself."""
        return self.count(_place_of(request)) - (request in self)

    def add(self, request: RoutedRequest, now: float) -> None:
        """Hold ``request``; one that is held already stays where it is."""
        queue = self.queue_of(request)
        if request not in queue:
            queue.add(request, now)

    def remove(self, request: RoutedRequest) -> None:
        """Hold ``request`` no longer; nothing happens where it is not held."""
        if request in self:
            self._queues[_place_of(request)].remove(request)

    def on_send(self, request: RoutedRequest, now: float) -> None:
        """A replica gets ``request``, which may have been held for it."""
        if request in self:
            self.remove(request)
            self.queue_of(request).wait.admit(1, now)

    def retain_only(self, places: Collection[Place]) -> None:
        """Forget what was served to fleets that have left the routing table, and have no held request."""
        self._queues = {place: queue for place, queue in self._queues.items() if place in places or len(queue)}

    def find_evicted(self, request: RoutedRequest) -> RoutedRequest | None:
        """The last of the sender that holds most places, which gives way to ``request`` where no place is left.

        Where the sender of ``request`` has as many as others, the last one of all if it is of a lower class, or None.
        """
        others = [
            each for each in self.iterate_held(_place_of(request)) if each is not request and each.reserved is None
        ]
        shares, party = Shares(len(others), reserve=0), (request.sender,)
        for each in others:
            shares.add((each.sender,), 1)
        holder = next((each for each in shares.find_larger(party) if shares.gives_way(each, party, 1, 1)), None)
        if holder is not None:
            return next(each for each in reversed(others) if (each.sender,) == holder)
        return others[-1] if others and others[-1].turn.priority > request.turn.priority else None


def _place_of(request: RoutedRequest) -> Place:
    return request.model, request.fleet
