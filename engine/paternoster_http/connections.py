"""The connections of one port: how many there are, from where, and which of them wait for their client."""

import time
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address

PATIENCE_SECONDS = 1.0
"""Which a client has for its next bytes before it may have to give way: new connections do not push each other out."""


class Connections:
    """Places for ``most`` connections, ``most_per_address`` of them for one address; 0 for no such limits."""

    def __init__(self, most: int, most_per_address: int = 0, most_bytes: int = 0) -> None:
        """``most_bytes`` of bodies may be held at once."""
        self._most = most
        self._most_per_address = most_per_address
        self._most_bytes = most_bytes
        self._of: Counter[object] = Counter()
        self._waiting: dict[Place, float] = {}
        self.total = 0
        self.held_bytes = 0
        self.on_room: Callable[[], None] = lambda: None
        """Called whenever there may be room again."""

    def make_room(self) -> bool:
        """Whether one more may come; where all places are taken, closes the one that has waited longest.

        None is closed that has waited for less than :data:`PATIENCE_SECONDS`. Its place is free once it has left.
        """
        if self.total < self._most:
            return True
        place, since = next(iter(self._waiting.items()), (None, 0.0))
        if place is not None and time.monotonic() - since >= PATIENCE_SECONDS:
            place.works()
            place.close()
        return False

    def make_room_for_bytes(self, asking: "Place") -> bool:
        """Whether what is held is within its bound; closes those that have waited longest with a part of a body."""
        while self._most_bytes and self.held_bytes > self._most_bytes:
            place = next((each for each in self._waiting if each.held_bytes and each is not asking), None)
            if place is None:
                return False
            place.works()
            place.release()
            place.close()
        return True

    def enter(self, host: str, close: Callable[[], None]) -> "Place | None":
        """A place that waits, None where its address has too many; ``close`` must end the connection."""
        address = _network(host)
        if self._most_per_address and self._of[address] >= self._most_per_address:
            return None
        self.total += 1
        self._of[address] += 1
        place = Place(self, address, close)
        self._waiting[place] = time.monotonic()
        return place


class Place:
    """One connection, of which must be said when it waits for its client and when it does not."""

    __slots__ = ("_address", "_connections", "_left", "close", "held_bytes")

    def __init__(self, connections: Connections, address: object, close: Callable[[], None]) -> None:
        self._connections = connections
        self._address = address
        self._left = False
        self.close = close
        self.held_bytes = 0

    def waits(self) -> None:
        """From now on: for a request, or for the rest of one."""
        if not self._left:
            self._connections._waiting.pop(self, None)
            self._connections._waiting[self] = time.monotonic()
            self._connections.on_room()

    def works(self) -> None:
        """From now on the server has a whole request."""
        self._connections._waiting.pop(self, None)

    def hold(self, count: int) -> bool:
        """Whether so many bytes more of a body may be kept."""
        if self._left:
            return True
        self.held_bytes += count
        self._connections.held_bytes += count
        return self._connections.make_room_for_bytes(self)

    def release(self) -> None:
        """Nothing of any body is kept any more."""
        self._connections.held_bytes -= self.held_bytes
        self.held_bytes = 0

    def leave(self) -> None:
        """The connection is closed."""
        if self._left:
            return
        self._left = True
        self.works()
        self.release()
        connections = self._connections
        connections.total -= 1
        connections._of[self._address] -= 1
        if not connections._of[self._address]:
            del connections._of[self._address]
        connections.on_room()


def _network(host: str) -> object:
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped) if address.ipv4_mapped else int(address) >> 64
