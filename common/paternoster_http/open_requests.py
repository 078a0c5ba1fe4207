"""Requests in progress at a port, counted for the parties that send them: which are admitted, and which give way.

A port has places for requests, and bytes for their bodies and for what is kept of their answers: because clients do not
read it, because it is not whole, or because a stream may have to be continued. Both are shared out by party
(:mod:`paternoster_http.shares`): at first by the client's address, then by the party that the application names
(:func:`charge_request`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Protocol

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.errors.refusal import Refusal
from paternoster_http.shares import Party, Shares

EXTENSION = "paternoster.open_request"
"""Extension of an ASGI scope: the :class:`OpenRequest`."""
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
    """State of a request, as far as it decides whether it may give way."""

    UPLOADING = "uploading"
    """Its client has not sent all of its body."""
    UNANSWERED = "unanswered"
    """Its body is whole, and its answer had not begun when that was looked at last."""
    BLOCKED = "blocked"
    """Its client does not read what is there of its answer."""
    ASSEMBLING = "assembling"
    """Its answer has begun, and some of it is kept until more has come."""


class Resource:
    """One thing that the requests of a port share, and which of those that hold some of it may give way."""

    def __init__(self, name: str, total: int, what: str) -> None:
        self.name = name
        self.what = what
        self.shares = Shares(total)
        self._holders: dict[tuple[Party, State], dict[OpenRequest, None]] = {}
        self._spares: dict[Party, dict[SpareBytes, None]] = {}

    def make_room(self, request: "OpenRequest", party: Party, amount: int) -> None:
        """Others give way until ``amount`` may be added to what ``party`` holds; raises :class:`Refusal` if not."""
        if self.drop_spares(party, amount):
            return
        others = self._find_victims(request, party, amount)
        refusals[self.name] += max(1, len(others))
        if not others:
            raise Refusal(503, f"The server has too many {self.what}: this client has {self.shares.held_by(party)} of "
                               f"{self.shares.total}, and what is left is kept for others.")  # fmt: skip
        for other in others:
            other.give_up(Refusal(503, f"The server has too many {self.what}: this one gave way to a client that has "
                                       "fewer. Send it again."))  # fmt: skip

    def drop_spares(self, party: Party, amount: int) -> bool:
        """Whether ``party`` may take ``amount``, once larger parties, and it, have lost their largest spares for it."""
        while not self.shares.has_room(party, amount):
            spare = self._find_spare(party, amount)
            if spare is None:
                return False
            spare.drop_bytes()
        return True

    def count_spare(self, spare: "SpareBytes", party: Party) -> None:
        """The spare has some of what ``party`` holds, or none any more."""
        spares = self._spares.setdefault(party, {})
        if spare.held:
            spares[spare] = None
        else:
            spares.pop(spare, None)
        if not spares:
            del self._spares[party]

    def _find_spare(self, party: Party, amount: int) -> "SpareBytes | None":
        for holder in self.shares.find_larger(party):
            spare = self._find_largest_spare(holder)
            if spare is not None and self.shares.gives_way(holder, party, spare.held, amount):
                return spare
        return self._find_largest_spare(party)

    def _find_largest_spare(self, party: Party) -> "SpareBytes | None":
        return max(self._spares.get(party, ()), key=lambda spare: spare.held, default=None)

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
        """Requests that have to give way; none where they would not be enough."""
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
        """Requests of larger parties, and then that of its own party whose client has sent nothing for longest.

        None whose part is so small that :data:`MOST_GIVING_WAY` of them would not be enough.
        """
        for holder in self.shares.find_larger(party):
            for other in self._list_candidates(holder):
                given = other.held[self]
                if given * MOST_GIVING_WAY >= amount and self.shares.gives_way(holder, party, given, amount):
                    yield other
        yield from (other for other in self._find_holders(party, State.UPLOADING) if other is not request)

    def _list_candidates(self, party: Party) -> Iterator["OpenRequest"]:
        yield from self._find_holders(party, State.UPLOADING)
        yield from self._find_holders(party, State.BLOCKED)
        for other in list(reversed(self._find_holders(party, State.UNANSWERED))):
            if other.has_begun():
                other.set_state_of_answer()
            else:
                yield other
        yield from list(self._find_holders(party, State.ASSEMBLING))

    def _find_holders(self, party: Party, state: State) -> dict["OpenRequest", None]:
        return self._holders.get((party, state), {})


class OpenRequests:
    """All requests in progress at one port."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self.places = Resource("requests", max_requests, "requests in progress")
        self.bytes = Resource("bytes", max_bytes, "bytes of requests and answers in memory")

    def add_request(self, address: str, give_up: "Callable[[OpenRequest, Refusal], None]") -> "OpenRequest":
        """A request whose headers have come from ``address``; ``give_up`` must end it, for another one."""
        return OpenRequest(self, (UNKNOWN, address), give_up)


class OpenRequest:
    """One request, and what it holds."""

    def __init__(self, port: OpenRequests, party: Party, give_up: "Callable[[OpenRequest, Refusal], None]") -> None:
        self.party = party
        self.state: State | None = State.UPLOADING
        self.cycle: Cycle | None = None
        self.end_in_event: Callable[[Refusal], object] | None = None
        """Ends an event stream that has comments and no answer yet, with an error event, for another request."""
        self._give_up = give_up
        self._port = port
        self._ended = False
        self._unread = 0
        self._parts: dict[str, int] = {}
        """Bytes that are kept of its answer, by what they are."""
        self._spares: dict[SpareBytes, None] = {}
        self.held: dict[Resource, int] = {port.places: 0, port.bytes: 0}

    def has_begun(self) -> bool:
        """Whether some of its answer has been sent: more than a status with comments behind it."""
        return self.cycle is not None and self.cycle.response_started and self.end_in_event is None

    def take_place(self) -> None:
        """Raises :class:`Refusal` where there is no place for it."""
        self._add_amount(self._port.places, 1)

    def hold_body(self, count: int) -> None:
        """``count`` bytes more of its body are kept; raises :class:`Refusal` where there is no room for them."""
        self._add_amount(self._port.bytes, count)

    def hold_unread(self, count: int, *, blocked: bool = True) -> None:
        """Its client does not read ``count`` bytes of its answer; raises :class:`Refusal` where they are too many.

        ``blocked``: it has not for a while.
        """
        if count and blocked:
            self.set_state(State.BLOCKED)
        self._add_amount(self._port.bytes, count - self._unread)
        self._unread = count
        if not count and self.state is State.BLOCKED:
            self.set_state_of_answer()

    def hold_answer(self, part: str, count: int) -> None:
        """``count`` bytes of a ``part`` of its answer are kept; raises :class:`Refusal` where there is no room."""
        before = self._parts.get(part, 0)
        if count == before:
            return
        self._add_amount(self._port.bytes, count - before)
        if count:
            self._parts[part] = count
        else:
            del self._parts[part]
        if self.state is not State.BLOCKED and (self.state is not State.UNANSWERED or self.has_begun()):
            self.set_state_of_answer()

    def hold_spare(self, spare: "SpareBytes", count: int) -> bool:
        """``spare`` has ``count`` bytes; False where there is no room for them, and then it has none."""
        more = count - spare.held
        if more > 0 and (self._ended or not self._port.bytes.drop_spares(self.party, more) or spare.is_dropped):
            count = 0
        if not self._ended:
            self._change_amount(self._port.bytes, count - spare.held)
        spare.held = count
        if count:
            self._spares[spare] = None
        else:
            self._spares.pop(spare, None)
        self._port.bytes.count_spare(spare, self.party)
        return more <= 0 or count > 0

    def set_state_of_answer(self) -> None:
        """The state of a request whose answer has begun, and is read."""
        self.set_state(State.ASSEMBLING if self._parts else None)

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
        for spare in list(self._spares):
            spare.drop_bytes()  # it has none before it is charged
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
        for spare in list(self._spares):
            self.hold_spare(spare, 0)
        for resource, held in self.held.items():
            self._change_amount(resource, -held)
        self._ended = True
        self.cycle = self.end_in_event = None
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


class SpareBytes:
    """Bytes that are kept for a request and that it can do without: they are dropped before any request is refused."""

    __slots__ = ("_forget", "_request", "held", "is_dropped")

    def __init__(self, request: OpenRequest, forget: Callable[[], object]) -> None:
        """``forget`` is called once others need the room."""
        self._request = request
        self._forget = forget
        self.held = 0
        self.is_dropped = False

    def hold_bytes(self, count: int) -> bool:
        """Whether there is room for ``count`` bytes in all; else none are counted, and all must be forgotten."""
        return self._request.hold_spare(self, count)

    def drop_bytes(self) -> None:
        """Others need the room."""
        self.is_dropped = True
        self.hold_bytes(0)
        self._forget()


def _do_nothing(_: OpenRequest, __: Refusal) -> None:
    """Callback of a request that has ended: nothing is left to give up."""


def party_of(scope: Mapping[str, Any]) -> Party:
    """The party that the request of an ASGI ``scope`` is counted for."""
    request = (scope.get("extensions") or {}).get(EXTENSION)
    return () if request is None else request.party  # no server of ours: a test's client


def open_request_of(scope: Mapping[str, Any]) -> OpenRequest:
    """The request of an ASGI ``scope``; where no server of ours has it, as in a test, one of a port of its own."""
    request = (scope.get("extensions") or {}).get(EXTENSION)
    return open_request_alone() if request is None else request


def open_request_alone() -> OpenRequest:
    """The only request of a port with default limits."""
    limits = HttpLimits()
    return OpenRequests(limits.max_connections, limits.max_held_body_bytes).add_request("", _do_nothing)


def charge_request(scope: Mapping[str, Any], party: Party) -> None:
    """Count the request of an ASGI ``scope`` for ``party``; raises :class:`Refusal` (503) where that has too much."""
    request = (scope.get("extensions") or {}).get(EXTENSION)
    if request is not None:
        request.charge_party(party)
