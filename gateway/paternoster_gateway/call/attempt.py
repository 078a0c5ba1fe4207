"""One sending of a call to a replica, and its result."""

from dataclasses import dataclass, field

from paternoster_contract.request_phases import RequestPhases
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.suspicion import Suspicion
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.routing.decisions import Result
from paternoster_gateway.routing.prefix_routing import PromptTokens
from paternoster_http.errors.refusal import Refusal

Headers = list[tuple[bytes, bytes]]
"""Pairs as in ASGI: names in lower case, and a name may occur several times."""


@dataclass(slots=True, eq=False)
class ReplicaAnswer:
    """Status, headers and origin of an engine's answer, whose body the driver of the session has."""

    status: int
    headers: Headers
    replica: str
    """URL of the replica."""
    attempts: int
    """Replicas that got the request until this one answered, itself included."""
    numerics: str | None = None
    """Numerics that a replica must have to continue the answer, where this is a stream with a journal."""
    is_stream: bool = False
    """Whether it consists of server-sent events."""
    journal: bytes = field(default=b"", repr=False)
    """The journal of what replicas before this one computed of it."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A replica's tokens of an answer that has no byte yet: another one may go on with it."""

    numerics: str
    journal: bytes = field(repr=False)
    failed: bool = False
    """Whether a step failed that computed the call."""
    broken: bool = False
    """Whether the replica did not hand it over, but stopped."""

    def build_resumption(self, call: Call) -> Call:
        """``call`` as the other replica gets it; as it began, where there is no room for what was computed."""
        try:
            call.open_request.hold_answer("journal", len(self.journal))
        except Refusal:
            return call
        return call.resume(0, self.numerics, self.journal)


@dataclass(slots=True)
class Attempt:
    """An answer, or an error for the client, and what the balancer records of the replica."""

    url: str
    """URL of the replica."""
    outcome: ReplicaAnswer | GatewayError
    reason: str = ""
    """Why it would be retried, for the metrics."""
    result: Result | None = None
    """Result for the balancer; None where the replica handed the call over."""
    served: bool = True
    """Whether the answer is none that the replica gives without computing a prompt."""
    tokens: PromptTokens | None = None
    """Tokens of the prompt, where the answer states them."""
    phases: RequestPhases | None = None
    """Parts of the time until the first byte, where the answer states them."""
    suspicion: Suspicion = Suspicion.NONE
    """Whether the call may have made the replica stop."""
    is_stop: bool = False
    """Whether the replica stopped, or closed the connection at least."""
    broke_off: bool = False
    """Whether the connection ended behind the headers of an answer, before its first piece."""
    handed_over: HandedOver | None = None
    """Beside the error: what another replica can go on with."""

    @property
    def closed_connection(self) -> bool:
        """Whether the replica closed the connection while it had the call, which may be all that it did."""
        return self.broke_off or (self.is_stop and self.reason != "hung")

    @property
    def refuses_journal(self) -> bool:
        """Whether the replica does not go on from another one's tokens: its version may be another."""
        return isinstance(self.outcome, ReplicaAnswer) and self.outcome.status in (400, 412)
