"""A session that runs, what its client has, and what no session may do."""

from dataclasses import dataclass, field

from paternoster_gateway.call.attempt import ReplicaAnswer
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.routing.decisions import Result
from streams.virtual.replicas import Connection, VirtualCall

RESULTS = {
    302: Result.NOT_THE_ENGINE, 401: Result.NOT_THE_ENGINE, 502: Result.REFUSED, 503: Result.NOT_SERVING,
    504: Result.REFUSED,
}  # fmt: skip
"""Results by status; any other status is an answer."""


class Violation(Exception):
    """A session did what none may do."""


@dataclass(slots=True)
class SeenWait:
    """Behaviour of a replica while a call waited for headers."""

    silent_before: bool
    silent: bool
    answered: bool


@dataclass(slots=True, eq=False)
class RunningCall:
    """A session, and what its client has."""

    call: VirtualCall
    session: CallSession
    expected: bytes
    client_bytes: int = 0
    connections: list[Connection] = field(default_factory=list)
    """Open ones."""
    waiting: Connection | None = None
    """The attempt of which nothing has come."""
    until_admitted: bool = False
    answers: dict[int, Connection] = field(default_factory=dict)
    """Connections by identity of the answer."""
    forwarded: ReplicaAnswer | None = None
    arrived: dict[Connection, list[bytes | bool]] = field(default_factory=dict)
    """Pieces that are not read, and whether the end was a whole one."""
    wakes: int = 0
    """Waits so far: the number of the present one."""
    is_waiting: bool = False
    journal_tokens: int | None = None
    """Tokens of a whole answer in the journal that its replica has sent."""
    ended: bool = False
