"""Which request made replicas stop, if any did; pure.

A replica that falls silent, or whose connections end, leaves many requests without an answer. Most have no part in it
and are sent to another replica. A request that made the replica stop would stop the next one, too. Of one stop, three
facts separate the two: when a request was sent, how long it is, and whether the replica answered anything after it had
the request. An engine reads and checks a body on the event loop that answers probes, and that takes time by the byte.

Of several stops the requests beside it do: :class:`ReplicaStops` finds the one that was at each of them, unless stops
are so frequent that it may have been there by chance.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from math import prod
from typing import Protocol

LONG_BODY = 256 * 2**10
"""Bytes. The slowest body measured took an engine 14 µs a byte: 3.7 s for this size; a replica is hung after 7.6 s."""
MIN_STOPS = 2
"""Stops of replicas that had a request and no other suspect, after which it is blamed."""
MIN_STOPS_IN_COMPANY = 3
"""Stops where it was not the only suspect of each; it is the only one of the last, by :mod:`.probation`."""
MAX_STOPS = 8
"""Stops of replicas that had a request, after which it is blamed whatever else stopped."""
MAX_CHANCE = 1e-5
"""Chance of as many stops while a replica has a request that has no part in them, beyond which it is not blamed."""
WINDOW_SECONDS = 300.0
"""For which the stops of a fleet count as a measure of how often its replicas stop."""
MIN_SPAN_SECONDS = 60.0
"""Span of the stops that are a measure; they are as many in a minute, at most, however close they are."""
SUSPECT_SECONDS = 3.0
"""For which a request is suspected, at most, at a replica that goes on to answer others; a stream, until a frame."""
SAME_STOP_SECONDS = 2.0
"""Within which connections to one replica end by the same stop."""
MAX_REMEMBERED_STOPS = 256
MAX_SUSPECTS = 256
"""Suspects of one stop; a request beyond them is not blamed for it."""


class Suspicion(Enum):
    """How likely a request made the replica stop that had it."""

    NONE = "none"
    POSSIBLE = "possible"
    """One of several: sent to another replica, unless :class:`ReplicaStops` blames it."""
    CERTAIN = "certain"
    """Long, and the replica was silent from the moment it had the request: sent to no other."""


class HeaderWait(Protocol):
    """Behaviour of a replica while a call waited for the headers of its answer."""

    @property
    def silent_before(self) -> bool:
        """Whether the replica left a probe unanswered when the wait began."""

    @property
    def silent(self) -> bool:
        """Whether it left a probe unanswered when the wait ended."""

    @property
    def answered(self) -> bool:
        """Whether it sent a byte so late that it had read and checked the call by then."""


def suspicion_of(size: int, wait: HeaderWait, *, is_stop: bool) -> Suspicion:
    """How likely a body of ``size`` bytes is why no headers came; ``is_stop``: the replica stopped, as far as is seen.

    Not a replica that takes no connection, or answers nonsense.
    """
    if wait.silent_before or not is_stop:
        return Suspicion.NONE
    if wait.silent and size > LONG_BODY and not wait.answered:
        return Suspicion.CERTAIN
    return Suspicion.POSSIBLE if wait.silent or not wait.answered else Suspicion.NONE


@dataclass(slots=True, eq=False)
class Stop:
    """One end of a replica, or of what it computed."""

    fleet: str
    url: str
    at: float
    suspects: set[bytes] = field(default_factory=set)
    """Digests of bodies that may have caused it."""


class ReplicaStops:
    """The last stops that one gateway saw; ``now`` is in seconds of any clock that never goes back."""

    def __init__(self) -> None:
        self._stops: deque[Stop] = deque(maxlen=MAX_REMEMBERED_STOPS)

    def record_stop(self, fleet: str, url: str, now: float, suspect: bytes | None = None) -> Stop:
        """The replica at ``url`` stopped; ``suspect``: a body that it had, which may have caused it."""
        stop = next((each for each in reversed(self._stops) if (each.fleet, each.url) == (fleet, url)), None)
        if stop is None or now - stop.at > SAME_STOP_SECONDS:
            stop = Stop(fleet, url, now)
            self._stops.append(stop)
        if suspect is not None and len(stop.suspects) < MAX_SUSPECTS:
            stop.suspects.add(suspect)
        return stop

    def is_cause(
        self,
        suspect: bytes,
        stops: Sequence[Stop],
        seconds: Sequence[float],
        num_replicas: int,
        now: float,
        beside: Collection[Stop] = (),
    ) -> bool:
        """Whether ``suspect`` caused ``stops`` in a fleet of ``num_replicas``.

        ``seconds``: for which the replica of each stop had it. ``beside``: other stops that it was at.
        """
        if len(stops) < MIN_STOPS or len(stops) >= MAX_STOPS:
            return len(stops) >= MAX_STOPS
        own = {*stops, *beside}
        others = [
            now - each.at
            for each in self._stops
            if each.fleet == stops[0].fleet and now - each.at < WINDOW_SECONDS and each not in own
        ]
        span = max(MIN_SPAN_SECONDS, *others) if others else WINDOW_SECONDS
        rate = len(others) / (span * max(1, num_replicas))
        chance = prod(min(1.0, rate * max(SUSPECT_SECONDS, each)) for each in seconds)
        alone = all(each.suspects == {suspect} for each in stops)
        common = set.intersection(*(each.suspects for each in stops))
        needed = MIN_STOPS if alone else MIN_STOPS_IN_COMPANY
        return common == {suspect} and len(stops) >= needed and chance <= MAX_CHANCE


class SuspectedCall:
    """The stops that one call was at."""

    def __init__(self, stops: ReplicaStops, fleet: str, digest: Callable[[], bytes]) -> None:
        """``digest``: of the call's body; computed at its first stop."""
        self.stops: list[Stop] = []
        """Stops that it may have caused."""
        self._seconds: dict[Stop, float] = {}
        """For which the replica of each had the call."""
        self._closed: list[Stop] = []
        self._beside: list[Stop] = []
        """Stops that it was at and did not cause."""
        self._all = stops
        self._fleet = fleet
        self._compute_digest = digest

    @cached_property
    def _digest(self) -> bytes:
        return self._compute_digest()

    @property
    def is_suspect(self) -> bool:
        """Whether several replicas stopped with it."""
        return len(self.stops) >= MIN_STOPS

    @property
    def closed(self) -> list[str]:
        """URLs of replicas that closed a connection since the last probes, which may be all that they did."""
        return [stop.url for stop in self._closed]

    def record_stop(
        self, url: str, now: float, *, suspected: bool, closed: bool = False, seconds: float = SUSPECT_SECONDS
    ) -> None:
        """The replica at ``url`` stopped ``seconds`` after it got the call, because of it perhaps if ``suspected``."""
        stop = self._all.record_stop(self._fleet, url, now, self._digest if suspected else None)
        if suspected:
            self.stops.append(stop)
            self._seconds[stop] = seconds
            self._closed += [stop] * closed
        else:
            self._beside.append(stop)

    def judge_closed(self, answered: Collection[str]) -> None:
        """Record which of the replicas :attr:`closed` stopped: those that answered a probe did not.

        Each is judged once: one that stopped answers again as soon as it has started anew.
        """
        removed = [stop for stop in self._closed if stop.url in answered]
        self.stops = [stop for stop in self.stops if stop not in removed]
        self._closed = []

    def clear_stops(self) -> None:
        """A replica has computed something of it."""
        self.stops, self._closed = [], []
        self._seconds.clear()

    def is_blamed(self, num_replicas: int, now: float) -> bool:
        """Whether it caused its stops, in a fleet of ``num_replicas``."""
        if not self.stops:
            return False
        seconds = [self._seconds[stop] for stop in self.stops]
        return self._all.is_cause(self._digest, self.stops, seconds, num_replicas, now, self._beside)
