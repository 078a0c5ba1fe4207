"""What the balancer decides for a request, and what it learns of an attempt."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from paternoster_contract.access.identity import Lane
from paternoster_contract.routing import Replica
from paternoster_gateway.routing.prefix_routing import Pick, PromptChain, SentRequest
from paternoster_gateway.routing.retry_budget import RetryBudget

RETRY_AFTER_SECONDS = 5
"""``Retry-After`` of a rejection whose fleet sets none."""


class Result(Enum):
    """What came of an attempt."""

    ANSWERED = "answered"
    """The client gets this answer, whatever its status."""
    REFUSED = "refused"
    """The replica answered at once that it does not serve this request."""
    FULL = "full"
    """Like ``REFUSED``, but its queue is full, so other requests go elsewhere for a moment."""
    NOT_SERVING = "not serving"
    """The replica is loading or draining."""
    NOT_THE_ENGINE = "not the engine"
    """It refused the gateway's key, or answered with a status that no engine has."""
    UNREACHABLE = "unreachable"
    """It ended, hung or closed the connection before the first byte."""
    BROKEN = "broken"
    """It broke off its answer after the first byte."""


class Retry(Enum):
    """Which replicas may get a request after an attempt."""

    NONE = "none"
    """No other: the result is the client's."""
    ONE_NOW = "one now"
    """One other, if one is ready: its answer is as good as this one."""
    ANY_NOW = "any now"
    """Each other one that is ready: the client has no part in what went wrong."""
    ANY = "any"
    """Each one, also one that is not ready yet: this one does not serve."""


RETRY_AFTER = {
    Result.ANSWERED: Retry.NONE,
    Result.REFUSED: Retry.ONE_NOW,
    Result.FULL: Retry.ONE_NOW,
    Result.NOT_SERVING: Retry.ANY,
    Result.NOT_THE_ENGINE: Retry.ANY_NOW,
    Result.UNREACHABLE: Retry.ANY,
    Result.BROKEN: Retry.NONE,
}
EJECTING = frozenset({Result.NOT_SERVING, Result.NOT_THE_ENGINE, Result.UNREACHABLE, Result.BROKEN})
"""Results after which the replica gets nothing for a moment."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request to ``replica``; it counts as in flight there until its attempt ends."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Queue:
    """Hold the request; route it again when a change of the table releases it, at the latest at ``until``."""

    until: float
    evicted: "RoutedRequest | None" = None
    """A held request that gives way to this one: route it again, too, and it is rejected."""


class RejectionCause(Enum):
    """Why a request is rejected."""

    NO_REPLICA = "no replica"
    """None is ready: 503."""
    FULL = "full"
    """Replicas serve, and as many requests wait for a place as may, or can get one in time: 429."""
    DEADLINE = "deadline"
    """The request's own deadline has passed: 504."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer with the status of ``cause``, and ``reason`` as the message."""

    reason: str
    retry_after: int = RETRY_AFTER_SECONDS
    cause: RejectionCause = RejectionCause.NO_REPLICA


@dataclass(frozen=True, slots=True)
class ReturnResult:
    """Give the client what the last attempt came to: there is no retry."""

    budget_exhausted: bool = False
    """A replica could have got the request, and the retry budget of its fleet is used up."""


Decision = Send | Queue | Reject | ReturnResult


@dataclass(frozen=True, slots=True)
class Turn:
    """What decides beside its sender and its arrival when a request is sent."""

    priority: int = 0
    """Class; lower is sent first."""
    weight: float = 1.0
    """Weight of its sender's share."""
    size: int = 0
    """Bytes of its body, by which its sender is charged until an engine reports tokens."""
    deadline_seconds: float | None = None
    """After its arrival, when an answer is of no use any more where nothing of it has come."""
    lane: Lane = Lane.ONLINE
    """Requests of other lanes are not held, and are no demand: their senders send them again."""

    def deadline_at(self, now: float) -> float | None:
        """Deadline of a request that arrives ``now``."""
        return None if self.deadline_seconds is None else now + self.deadline_seconds


@dataclass(slots=True, eq=False)
class RoutedRequest:
    """One request on its way to a replica. The balancer alone changes it; the driver reads :attr:`retry`."""

    model: str
    """The first of its model's names."""
    fleet: str
    name: str
    """The client's name for the model; may be empty."""
    sender: str
    """The tenant or address that its share of the held requests is counted for."""
    budget: RetryBudget
    arrival: int = 0
    """Number that orders requests: the lower one came first."""
    turn: Turn = field(default_factory=Turn)
    deadline: float | None = None
    """When an answer is of no use any more, where nothing of it has come."""
    charged_prompt: float | None = None
    """Tokens of its prompt that its sender was charged; None: none yet."""
    tried: list[str] = field(default_factory=list)
    """URLs of the replicas that it was sent to, in order."""
    in_flight: list[str] = field(default_factory=list)
    """URLs of replicas where an attempt has not ended."""
    retry: Retry = Retry.NONE
    """What the result of the last attempt allows: ``NONE``, and there is nothing to route."""
    is_last_attempt: bool = False
    """Whether one more refusal is the client's."""
    hold_until: float | None = None
    """When it gives up, once it has been held since its last attempt."""
    reserved: str | None = None
    """URL of the replica with a place for it, which counts as in flight there: it is held until it is routed again."""
    prompt: PromptChain | None = None
    """Its text; None where it has none, or its fleet one replica."""
    pick: Pick | None = None
    """Why it was sent where it was last; None where it was sent by load alone."""
    sent: dict[str, SentRequest] = field(default_factory=dict)
    """Requests that were sent by their chain and wait for the first byte, by URL."""
    subset: Collection[str] | None = None
    """Addresses of the replicas that it may be sent to, such as ``10.0.0.7:8000``; None: each of its fleet."""
    rejection: Reject | None = None
    """Once another request has its place among the held ones."""

    @property
    def text_size(self) -> int:
        """Bytes of its text, or of its body where that was not read."""
        return self.turn.size if self.prompt is None else self.prompt.size
