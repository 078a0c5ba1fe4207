"""Bodies that stopped a replica and are sent to no other, and which requests in flight are suspected of it.

A replica that falls silent, or whose connections end, leaves many requests without an answer. Most have no part in it
and are sent to another replica. A request that made the replica stop would stop the next one, too. Three facts separate
the two: when a request was sent, how long it is, and whether the replica answered anything after it had the request. An
engine reads and checks a body on the event loop that answers probes, and that takes time by the byte.
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
"""Bytes. The slowest body measured took an engine 14 µs a byte: 3.7 s for this size; a replica is hung after 8.5 s."""
MAX_POSSIBLE = 2
"""Replicas that stop while they have a request, after which it is sent to no other, whatever its length."""
QUARANTINE_SECONDS = 300.0
"""Time for which a body is refused: longer than clients go on retrying."""
MAX_BODIES = 1024
"""Most bodies that one gateway refuses; the oldest is removed first."""
MAX_LEFT = 64
"""Most bodies of a replica that are remembered because their clients left before it answered."""


class Suspicion(Enum):
    """How likely a request made the replica stop that had it."""

    NONE = "none"
    POSSIBLE = "possible"
    """One of several: sent to one other replica."""
    CERTAIN = "certain"
    """Long, and the replica was silent from the moment it had the request: sent to no other."""


def suspicion(size: int, error: BaseException, wait: Wait) -> Suspicion:
    """How likely a body of ``size`` bytes caused ``error``, which came in place of an answer's headers."""
    ended = isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError, TimeoutError))
    unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError))
    if wait.silent_before or unsent or not ended:
        return Suspicion.NONE
    if wait.silent and size > LONG_BODY and not wait.answered:
        return Suspicion.CERTAIN
    return Suspicion.POSSIBLE if wait.silent or not wait.answered else Suspicion.NONE


def digest_of(fleet: str, tenant: str, path: str, body: bytes) -> bytes:
    """The key that a body is remembered by: no tenant can have another tenant's body refused."""
    hashed = sha256("\0".join((fleet, tenant, path, "")).encode())
    hashed.update(body)
    return hashed.digest()


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
        """The number of bodies that are refused; removes those whose time has passed."""
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

    def add_left(self, url: str, digest: bytes, wait: Wait) -> None:
        """Remember a long body whose client left: :meth:`on_replica_hung` refuses it if the replica answers no more."""
        self._left.setdefault(url, deque(maxlen=MAX_LEFT)).append(_Left(digest, wait))

    def on_replica_hung(self, url: str, last_byte: float) -> None:
        """Refuse the bodies that the replica at ``url`` had when it fell silent, whose clients have left."""
        for left in self._left.pop(url, ()):
            if not left.wait.answered_by(last_byte):
                self.add(left.digest)

    def forget_left(self, url: str) -> None:
        """Forget the bodies that were sent to ``url``: the replica has answered, or is gone."""
        self._left.pop(url, None)


def quarantined(model: str) -> GatewayError:
    """The error for a refused body: 422, since clients retry after 5xx and the body would stop the next replica."""
    return GatewayError(
        422, "UnprocessableEntityError",
        f"A replica of `{model}` stopped while it had this request, so it is sent to no other, and is refused for "
        f"{QUARANTINE_SECONDS:g} s. Send a shorter or another one.",
        code="request_quarantined",
    )  # fmt: skip
