"""Requests in progress at a port, counted for the parties that send them: which are admitted, and which give way.

A port has places for requests, and bytes for their bodies and for answers that clients do not read. Both are shared out
by party (:mod:`paternoster_http.shares`): at first by the client's address, then by the party that the
application names (:func:`charge_request`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Protocol

from paternoster_http.errors.refusal import Refusal
from paternoster_http.shares import Party, Shares

EXTENSION = "paternoster.open_request"
"""Of an ASGI scope: the :class:`OpenRequest`."""
UNKNOWN = ""
"""First part of the party of requests of which only the address is known."""

MOST_GIVING_WAY = 64
"""Requests that give way for one."""

RESOURCES = ("requests", "bytes")
refusals: Counter[str] = Counter(dict.fromkeys(RESOURCES, 0))
"""Requests of this process that were refused or given up for want of each resource."""


class Cycle(Protocol):
    """uvicorn's state of one request and its answer."""

    response_started: bool


class State(Enum):
    """Of a request, as far as it decides whether it may give way."""

    UPLOADING = "uploading"
    """Its client has not sent all of its body."""
    UNANSWERED = "unanswered"
    """Its body is whole, and its answer had not begun when that was looked at last."""
    BLOCKED = "blocked"
    """Its client does not read what is there of its answer."""


class Resource:
    """One thing that the requests of a port share, and which of those that hold some of it may give way."""

    def __init__(self, name: str, total: int, what: str) -> None:
        self.name = name
        self.what = what
        self.shares = Shares(total)
        self._holders: dict[tuple[Party, State], dict[OpenRequest, None]] = {}

    def make_room(self, request: "OpenRequest", party: Party, amount: int) -> None:
        """Others give way until ``amount`` may be added to what ``party`` holds; raises :class:`Refusal` if not."""
        if self.shares.has_room(party, amount):
            return
        others = self._find_victims(request, party, amount)
        refusals[self.name] += max(1, len(others))
        if not others:
            raise Refusal(503, f"The server has too many {self.what}: this client has {self.shares.held_by(party)} of "
                               f"{self.shares.total}, and what is left is kept for others.")  # fmt: skip
        for other in others:
            other.give_up(Refusal(503, f"The server has too many {self.what}: this one gave way to a client that has "
                                       "fewer. Send it again."))  # fmt: skip

    def count_request(self, request: "OpenRequest", before: tuple[Party, State | None] | None) -> None:
        """The request holds something, in another state or for another party than ``before``; None: or held nothing."""
        self.uncount_request(request, before)
        if request.state is not None:
            self._holders.setdefault((request.party, request.state), {})[request] = None

    def uncount_request(self, request: "OpenRequest", place: tuple[Party, State | None] | None) -> None:
        """The request is not in ``place`` any more."""
        if place is None or place[1] is None:
            return
        holders = self._holders.get((place[0], place[1]), {})
        holders.pop(request, None)
        if not holders:
            self._holders.pop((place[0], place[1]), None)

    def _find_victims(self, request: "OpenRequest", party: Party, amount: int) -> list["OpenRequest"]:
        """Those that have to give way; none where they would not be enough."""
        victims: dict[OpenRequest, None] = {}
        try:
            while not self.shares.has_room(party, amount):
                others = self._giving_way(request, party, amount)
                other = next((each for each in others if each not in victims), None)
                if other is None or len(victims) == MOST_GIVING_WAY:
                    return []
                self.shares.remove(other.party, other.held[self])
                victims[other] = None
        finally:
            for other in victims:
                self.shares.add(other.party, other.held[self])
        return list(victims)

    def _giving_way(self, request: "OpenRequest", party: Party, amount: int) -> Iterator["OpenRequest"]:
        """Those of larger parties, and then of its own the one whose client has sent nothing for longest."""
        for holder in self.shares.find_larger(party):
            for other in self._list_candidates(holder):
                if self.shares.gives_way(holder, party, other.held[self], amount):
                    yield other
        yield from (other for other in self._find_holders(party, State.UPLOADING) if other is not request)

    def _list_candidates(self, party: Party) -> Iterator["OpenRequest"]:
        yield from self._find_holders(party, State.UPLOADING)
        yield from self._find_holders(party, State.BLOCKED)
        for other in list(reversed(self._find_holders(party, State.UNANSWERED))):
            if other.has_begun():
                other.set_state(None)
            else:
                yield other

    def _find_holders(self, party: Party, state: State) -> dict["OpenRequest", None]:
        return self._holders.get((party, state), {})


class OpenRequests:
    """All requests in progress at one port."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self.places = Resource("requests", max_requests, "requests in progress")
        self.bytes = Resource("bytes", max_bytes, "bytes of requests and unread answers in memory")

    def add_request(self, address: str, give_up: "Callable[[OpenRequest, Refusal], None]") -> "OpenRequest":
        """A request whose headers have come from ``address``; ``give_up`` must end it, for another one."""
        return OpenRequest(self, (UNKNOWN, address), give_up)


class OpenRequest:
    """One request, and what it holds."""

    def __init__(self, port: OpenRequests, party: Party, give_up: "Callable[[OpenRequest, Refusal], None]") -> None:
        self.party = party
        self.state: State | None = State.UPLOADING
        self.cycle: Cycle | None = None
        self._give_up = give_up
        self._port = port
        self._ended = False
        self._unread = 0
        self.held: dict[Resource, int] = {port.places: 0, port.bytes: 0}

    def has_begun(self) -> bool:
        """Whether some of its answer has been sent."""
        return self.cycle is not None and self.cycle.response_started

    def take_place(self) -> None:
        """Raises :class:`Refusal` where there is no place for it."""
        self._add_amount(self._port.places, 1)

    def hold_body(self, count: int) -> None:
        """``count`` bytes more of its body are kept; raises :class:`Refusal` where there is no room for them."""
        self._add_amount(self._port.bytes, count)

    def hold_unread(self, count: int) -> None:
        """Its client does not read ``count`` bytes of its answer; raises :class:`Refusal` where they are too many."""
        more = count - self._unread
        if count:
            self.set_state(State.BLOCKED)
            self._add_amount(self._port.bytes, more)
        elif self.state is State.BLOCKED:
            self._change_amount(self._port.bytes, more)
            self.set_state(None)
        self._unread = count

    def set_state(self, state: State | None) -> None:
        """Also where it is the same: it comes last of those in it, then."""
        before, self.state = (self.party, self.state), state
        for resource, held in self.held.items():
            if held and not self._ended:
                resource.count_request(self, before)

    def charge_party(self, party: Party) -> None:
        """It is counted for ``party`` from now on; raises :class:`Refusal` where that has no room, and changes nothing.

        What it holds is not counted while others give way for it.
        """
        if self._ended or party == self.party:
            return
        before = self.party
        holdings = {resource: held for resource, held in self.held.items() if held}
        for resource, held in holdings.items():
            resource.shares.remove(before, held)
        try:
            for resource, held in holdings.items():
                resource.make_room(self, party, held)
        except Refusal:
            party = before
            raise
        finally:
            self.party = party
            for resource, held in holdings.items():
                resource.shares.add(party, held)
                resource.count_request(self, (before, self.state))

    def give_up(self, refusal: Refusal) -> None:
        """End it for another one."""
        self._give_up(self, refusal)
        self.release_all()

    def release_all(self) -> None:
        """It holds nothing any more, nor its connection, which holds it: only a garbage collection would find them."""
        for resource, held in self.held.items():
            self._change_amount(resource, -held)
        self._ended = True
        self.cycle = None
        self._give_up = _do_nothing

    def _add_amount(self, resource: Resource, amount: int) -> None:
        if not self._ended:
            if amount > 0:
                resource.make_room(self, self.party, amount)
            self._change_amount(resource, amount)

    def _change_amount(self, resource: Resource, amount: int) -> None:
        if self._ended or not amount:
            return
        resource.shares.add(self.party, amount)
        before, self.held[resource] = self.held[resource], self.held[resource] + amount
        if not before:
            resource.count_request(self, None)
        elif not self.held[resource]:
            resource.uncount_request(self, (self.party, self.state))


def _do_nothing(_: OpenRequest, __: Refusal) -> None:
    """Of a request that has ended: nothing is left to give up."""


def party_of(scope: Mapping[str, Any]) -> Party:
    """The party that the request of an ASGI ``scope`` is counted for."""
    request = (scope.get("extensions") or {}).get(EXTENSION)
    return () if request is None else request.party  # no server of ours: a test's client


def charge_request(scope: Mapping[str, Any], party: Party) -> None:
    """Count the request of an ASGI ``scope`` for ``party``; raises :class:`Refusal` (503) where that has too much."""
    request = (scope.get("extensions") or {}).get(EXTENSION)
    if request is not None:
        request.charge_party(party)
