"""A client's request, as replicas get it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from paternoster_contract.stream_journal import RESUME, Resume
from paternoster_http.open_requests import OpenRequest, open_request_alone


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request."""

    path: str
    model: str
    body: bytes
    headers: Mapping[str, str]
    named: bool = True
    """Whether the body names the model; else ``model`` is the only one that its sender's key opens."""
    brackets: int = 0
    """Brackets of :attr:`body`, as :func:`~paternoster_gateway.proxy.body.refuse_costly` counts them."""
    is_stream: bool = False
    """Whether the client requests server-sent events."""
    debug: bool = False
    """Whether the answer states why its replica was chosen."""
    priority: int = 0
    """Class; lower is sent first."""
    deadline_seconds: float | None = None
    """After which an answer is of no use, if nothing of it has come."""
    journal: bytes = field(default=b"", repr=False)
    """The journal of what replicas before computed of the answer; it is sent behind the body."""
    open_request: OpenRequest = field(default_factory=open_request_alone, repr=False, compare=False)
    """Account of the bytes that are kept of the answer."""

    def resume(self, num_frames: int, numerics: str, journal: bytes) -> "Call":
        """The call as a replica gets it that goes on behind ``journal``, of which the client has ``num_frames``."""
        resume = Resume(num_frames, len(journal), numerics)
        return replace(self, journal=journal, headers={**self.headers, RESUME: resume.encode()})
