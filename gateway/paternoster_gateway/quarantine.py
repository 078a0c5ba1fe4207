"""Bodies that silenced a replica and are sent to no other: which they are, and which of those in flight are to blame.

A replica that falls silent, or whose connections end, leaves many requests without an answer. Most have no part in it
and are sent to another replica. One that made it stop would stop the next one, too. What tells them apart is when they
were sent, how long they are, and whether the replica answered anything after it had them: a body is read and checked on
the event loop that answers probes, and that takes time by the byte.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

import aiohttp

from paternoster_gateway.errors import GatewayError
from paternoster_gateway.liveness import Wait

LONG_BODY = 256 * 2**10
"""Bytes. The slowest body known took an engine 14 µs a byte: 3.7 s for this size; a replica is hung after 8.5 s."""
MAX_POSSIBLE = 2
"""Replicas that stopped while they had a request, after which it is sent to no other, whatever its length."""
QUARANTINE_SECONDS = 300.0
"""For which a body is refused: longer than clients go on retrying."""
MAX_BODIES = 1024
"""Refused at once, of one gateway; the oldest is forgotten first."""
MAX_LEFT = 64
"""Bodies, by replica, whose clients left before the replica answered."""


class Suspicion(Enum):
    """What a replica that stopped says of a request that it had."""

    NONE = "none"
    POSSIBLE = "possible"
    """One of several: sent to one other replica."""
    CERTAIN = "certain"
    """Long, and the replica was silent from the moment that it had it: sent to no other."""


def suspicion(size: int, error: BaseException, wait: Wait) -> Suspicion:
    """What ``error`` in the place of an answer's headers says of a body of ``size`` bytes."""
    ended = isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError, TimeoutError))
    unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError))
    if wait.silent_before or unsent or not ended:
        return Suspicion.NONE
    if wait.silent and size > LONG_BODY and not wait.answered:
        return Suspicion.CERTAIN
    return Suspicion.POSSIBLE if wait.silent or not wait.answered else Suspicion.NONE


def digest_of(fleet: str, tenant: str, path: str, body: bytes) -> bytes:
    """What a body is remembered by: no tenant can have a body of another refused."""
    made = sha256("\0".join((fleet, tenant, path, "")).encode())
    made.update(body)
    return made.digest()


@dataclass(frozen=True, slots=True)
class _Left:
    """A body whose client left before the replica answered."""

    digest: bytes
    wait: Wait


class Quarantine:
    """The bodies that one gateway refuses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._left: dict[str, deque[_Left]] = {}

    def __len__(self) -> int:
        """How many bodies are refused; those whose time has passed are forgotten."""
        while self._until and next(iter(self._until.values())) <= self._clock():
            self._until.popitem(last=False)
        return len(self._until)

    def __contains__(self, digest: bytes) -> bool:
        return bool(len(self)) and digest in self._until

    def add(self, digest: bytes) -> None:
        self._until.pop(digest, None)
        self._until[digest] = self._clock() + QUARANTINE_SECONDS
        if len(self._until) > MAX_BODIES:
            self._until.popitem(last=False)

    def note_left(self, url: str, digest: bytes, wait: Wait) -> None:
        """The client of a long body left: :meth:`replica_hung` blames it if the replica answers no more."""
        self._left.setdefault(url, deque(maxlen=MAX_LEFT)).append(_Left(digest, wait))

    def replica_hung(self, url: str, last_heard: float) -> None:
        """Refuse the bodies that the replica at ``url`` had when it fell silent, whose clients have left."""
        for left in self._left.pop(url, ()):
            if not left.wait.answered_by(last_heard):
                self.add(left.digest)

    def forget_left(self, url: str) -> None:
        """The replica at ``url`` owes nothing any more."""
        self._left.pop(url, None)


def quarantined(model: str) -> GatewayError:
    """422, since clients retry what begins with a 5, and the same body would stop the next replica."""
    return GatewayError(
        422, "UnprocessableEntityError",
        f"A replica of `{model}` stopped while it had this request, so it is sent to no other, and is refused for "
        f"{QUARANTINE_SECONDS:g} s. Send a shorter or another one.",
        code="request_quarantined",
    )  # fmt: skip
