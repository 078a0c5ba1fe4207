"""Actions that the session of a call has its driver carry out, and the events with which the driver answers.

Each action names the event that answers it. A driver carries out one action at a time.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from paternoster_contract.routing import Replica
from paternoster_gateway.call.attempt import ReplicaAnswer
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.errors import GatewayError


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until the router wakes the request, or until ``until``; no event."""

    until: float
    """Seconds of the router's clock."""


@dataclass(frozen=True, slots=True)
class AwaitTurn:
    """Wait until the probation wakes the request; no event."""


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Send ``call`` to ``replica``; the event is the :class:`~paternoster_gateway.call.attempt.Attempt`."""

    replica: Replica
    call: Call
    until_admitted: bool = False
    """Whether the headers of an answer are enough, with which an engine admits a stream that goes on."""
    seconds_alone: float | None = None
    """After which the driver calls :meth:`CallSession.end_turn`, if the attempt goes on; None: never."""


@dataclass(frozen=True, slots=True)
class ProbeReplicas:
    """Send a health probe to each replica, once what else has happened is recorded.

    The event has the URLs of those that answered.
    """

    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Close an answer, however much of it was read; no event."""

    answer: ReplicaAnswer


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass each piece of the answer to :meth:`CallSession.read_piece`, and what that returns to the client.

    The event is a :class:`Pause`, or a :class:`Break`. After ``MAY_MOVE`` the same answer may be forwarded further.
    """

    answer: ReplicaAnswer


@dataclass(frozen=True, slots=True)
class EndInError:
    """End the stream of the client with an event that states ``error``; no event."""

    error: GatewayError
    within_frame: bool
    """Whether the last frame that the client has may lack its end."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Close the connection to the client: its answer is no stream, and can state no error any more; no event."""


Action = Hold | AwaitTurn | StartAttempt | ProbeReplicas | Discard | Forward | EndInError | Abort
T = TypeVar("T")
Steps = Generator[Action, Any, T]
"""Actions, each answered by its event, and what they come to."""


class Pause(Enum):
    """Why an answer is not forwarded further for now, without a failure."""

    ENDED = "ended"
    MAY_MOVE = "may move"
    """:meth:`CallSession.may_move` is true."""


class BreakCause(Enum):
    """Why the rest of an answer does not come."""

    CLOSED = "closed"
    """The replica ended, hung or closed the connection."""
    FRAME_TOO_LONG = "frame too long"
    NO_ROOM = "no room"
    """The gateway has no room for what is not whole; the replica has no part in it."""


@dataclass(frozen=True, slots=True)
class Break:
    """The rest of an answer does not come."""

    cause: BreakCause
    message: str = field(default="", compare=False)
