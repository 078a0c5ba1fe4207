"""Bodies that made a replica stop, which are sent to no other and refused for a time.

Another replica would stop at the same body. :mod:`paternoster_gateway.call.suspicion` estimates how likely
a body made a replica stop; ``now`` is in seconds of any clock that never goes back.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from hashlib import sha256

from paternoster_contract.shares.places import SharedPlaces
from paternoster_gateway.errors import GatewayError

QUARANTINE_SECONDS = 300.0
"""Time for which a body is refused: longer than clients go on retrying."""
MAX_BODIES = 1024
"""Most bodies that one gateway refuses, shared out by namespace; the oldest is removed first."""
MAX_LEFT = 64
"""Most bodies of a replica that are remembered because their clients left before it answered."""


def digest_of(fleet: str, tenant: str, path: str, body: bytes) -> bytes:
    """The key that a body is remembered by: no tenant can have another tenant's body refused."""
    hashed = sha256("\0".join((fleet, tenant, path, "")).encode())
    hashed.update(body)
    return hashed.digest()


@dataclass(frozen=True, slots=True)
class _Left:
    """A body whose client left before the replica answered."""

    digest: bytes
    namespace: str
    read_by: float
    """When a replica that then sends a byte has read the body."""


class Quarantine:
    """The bodies that one gateway refuses."""

    def __init__(self) -> None:
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._places = SharedPlaces[bytes](MAX_BODIES)
        self._left: dict[str, deque[_Left]] = {}

    def count(self, now: float) -> int:
        """The number of bodies that are refused; removes those whose time has passed."""
        while self._until and next(iter(self._until.values())) <= now:
            self._places.release(self._until.popitem(last=False)[0])
        return len(self._until)

    def contains(self, digest: bytes, now: float) -> bool:
        return bool(self.count(now)) and digest in self._until

    def add(self, digest: bytes, now: float, namespace: str = "") -> None:
        """Refuse a body for a fleet of ``namespace`` for :data:`QUARANTINE_SECONDS`."""
        self._until.pop(digest, None)
        self._until[digest] = now + QUARANTINE_SECONDS
        if (evicted := self._places.take_place(digest, namespace)) is not None:
            del self._until[evicted]

    def add_left(self, url: str, digest: bytes, read_by: float, namespace: str = "") -> None:
        """Remember a long body whose client left: :meth:`on_replica_hung` refuses it if the replica answers no more.

        ``read_by``: when a replica that then sends a byte has read the body.
        """
        self._left.setdefault(url, deque(maxlen=MAX_LEFT)).append(_Left(digest, namespace, read_by))

    def on_replica_hung(self, url: str, last_byte: float, now: float) -> None:
        """Refuse the bodies that the replica at ``url`` had when it fell silent, whose clients have left."""
        for left in self._left.pop(url, ()):
            if last_byte < left.read_by:
                self.add(left.digest, now, left.namespace)

    def forget_left(self, url: str) -> None:
        """Forget the bodies that were sent to ``url``: the replica has answered, or is gone."""
        self._left.pop(url, None)


def quarantine_error(model: str) -> GatewayError:
    """The error for a refused body: 422, since clients retry after 5xx and the body would stop the next replica."""
    return GatewayError(
        422, "UnprocessableEntityError",
        f"A replica of `{model}` stopped while it had this request, so it is sent to no other, and is refused for "
        f"{QUARANTINE_SECONDS:g} s. Send a shorter or another one.",
        code="request_quarantined",
    )  # fmt: skip
