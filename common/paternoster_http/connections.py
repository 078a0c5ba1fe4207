"""The connections of one port: how many there are, from where, and which of them wait for their client."""

import time
from collections.abc import Callable
from ipaddress import IPv6Address

from paternoster_http.shares import Party, Shares

PATIENCE_SECONDS = 1.0
"""Which a client has for its next bytes before it may have to give way: new connections do not push each other out."""
_NEW: Party = ("",)
"""An address that has none yet."""


class Connections:
    """Places for ``most`` connections, ``most_per_address`` of them for one address; 0 for no such limit."""

    def __init__(self, most: int, most_per_address: int = 0) -> None:
        self._most_per_address = most_per_address
        self._shares = Shares(most, reserve=0)
        """Counted by address."""
        self._waiting: dict[Party, dict[Place, float]] = {}
        """Connections of each address that wait for their client, and since when."""
        self.on_room: Callable[[], None] = lambda: None
        """Called whenever there may be room again."""

    @property
    def total(self) -> int:
        return self._shares.held_by()

    def make_room(self) -> bool:
        """Whether one more may come; where all places are taken, closes the one that has waited longest.

        It is one of the address that has most of those places. None is closed that has waited for less than
        :data:`PATIENCE_SECONDS`. Its place is free once it has left.
        """
        if self.total < self._shares.total:
            return True
        crowded = (self._waiting[address] for address in self._shares.find_larger(_NEW) if address in self._waiting)
        waiting = next(crowded, None) or next(iter(self._waiting.values()), {})
        place, since = next(iter(waiting.items()), (None, 0.0))
        if place is not None and time.monotonic() - since >= PATIENCE_SECONDS:
            place.begin_working()
            place.close()
        return False

    def open_place(self, host: str, close: Callable[[], None]) -> "Place | None":
        """A place that waits, None where its address has too many; ``close`` must end the connection."""
        address = (address_of(host),)
        if self._most_per_address and self._shares.held_by(address) >= self._most_per_address:
            return None
        self._shares.add(address, 1)
        place = Place(self, address, close)
        self._wait(place, address)
        return place

    def _wait(self, place: "Place", address: Party) -> None:
        self._end_wait(place, address)
        self._waiting.setdefault(address, {})[place] = time.monotonic()

    def _end_wait(self, place: "Place", address: Party) -> None:
        waiting = self._waiting.get(address, {})
        waiting.pop(place, None)
        if not waiting:
            self._waiting.pop(address, None)

    def _remove_place(self, place: "Place", address: Party) -> None:
        self._end_wait(place, address)
        self._shares.remove(address, 1)
        self.on_room()


class Place:
    """One connection; the server reports when it waits for its client and when it does not."""

    __slots__ = ("_address", "_connections", "_left", "close")

    def __init__(self, connections: Connections, address: Party, close: Callable[[], None]) -> None:
        self._connections = connections
        self._address = address
        self._left = False
        self.close = close

    @property
    def address(self) -> str:
        """What counts as one client where nothing better is known: an IPv4 address or an IPv6 /64."""
        return self._address[0]

    def begin_waiting(self) -> None:
        """From now on: for a request, for the rest of one, or for what the client does not read of an answer."""
        if not self._left:
            self._connections._wait(self, self._address)
            self._connections.on_room()

    def begin_working(self) -> None:
        """From now on the server has a whole request, and its client reads the answer."""
        self._connections._end_wait(self, self._address)

    def close_place(self) -> None:
        """The connection is closed."""
        if not self._left:
            self._left = True
            self._connections._remove_place(self, self._address)


def address_of(host: str) -> str:
    """The IPv4 address, or the /64 of an IPv6 address: what one client has."""
    host = unmap_address(host)
    return f"{int(IPv6Address(host.partition('%')[0])) >> 64:x}::/64" if ":" in host else host


def unmap_address(host: str) -> str:
    """The IPv4 address of a client that a socket of both families has as ``::ffff:192.0.2.1``; others as they are."""
    return host.removeprefix("::ffff:") if "." in host else host
