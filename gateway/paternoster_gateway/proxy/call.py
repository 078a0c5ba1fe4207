"""A client's request, and what became of sending it to a replica."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from paternoster_contract.stream_journal import RESUME, Resume
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.proxy.headers import Headers
from paternoster_gateway.proxy.suspicion.suspicion import Suspicion
from paternoster_http.errors.refusal import Refusal
from paternoster_http.open_requests import OpenRequest, open_request_alone


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request."""

    path: str
    model: str
    body: bytes
    headers: Mapping[str, str]
    key: str = field(default="", repr=False)
    """The client's key, which no engine gets."""
    named: bool = True
    """Whether the body names the model; else ``model`` is the only one that the key opens."""
    brackets: int = 0
    """Of :attr:`body`, as :func:`~paternoster_gateway.proxy.body.refuse_costly` counts them."""
    is_stream: bool = False
    """Whether the client requests server-sent events."""
    debug: bool = False
    """Whether the answer states why its replica was chosen."""
    priority: int = 0
    """Class; lower is sent first."""
    deadline_seconds: float | None = None
    """After which an answer is of no use, if nothing of it has come."""
    journal: bytes = field(default=b"", repr=False)
    """What replicas before computed of the answer, which is sent behind the body."""
    open_request: OpenRequest = field(default_factory=open_request_alone, repr=False, compare=False)
    """What counts the bytes that are kept of the answer."""

    def resume(self, num_frames: int, numerics: str, journal: bytes) -> "Call":
        """The call as a replica gets it that goes on behind ``journal``, of which the client has ``num_frames``."""
        resume = Resume(num_frames, len(journal), numerics)
        return replace(self, journal=journal, headers={**self.headers, RESUME: resume.encode()})


@dataclass(slots=True)
class Answer:
    """An engine's answer whose body is still on its way; :meth:`discard` must be called in the end."""

    status: int
    headers: Headers
    chunks: AsyncGenerator[bytes]
    replica: str
    """URL of the replica."""
    attempts: int
    """Replicas that got the request until this one answered, itself included."""
    stack: AsyncExitStack = field(repr=False)
    numerics: str | None = None
    """Where the answer is a stream with a journal: what a replica that continues it must have in common."""
    is_stream: bool = False
    """Whether it consists of server-sent events."""
    journal: bytes = field(default=b"", repr=False)
    """What replicas before this one computed of it."""

    async def discard(self) -> None:
        """End it, however much of it was read."""
        await self.chunks.aclose()
        await self.stack.aclose()


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
    """What came of sending a call to one replica: an answer, or an error for the client."""

    outcome: Answer | GatewayError
    reason: str = ""
    """Why it would be retried, for the metrics."""
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
        return isinstance(self.outcome, Answer) and self.outcome.status in (400, 412)

    async def discard(self) -> None:
        """Close the answer: another attempt follows, or no client waits."""
        if isinstance(self.outcome, Answer):
            await self.outcome.discard()
