"""What a pod's engine answers to a probe of its health and to a request, and what is wrong with that."""

from dataclasses import dataclass
from urllib.parse import urlsplit

LONGEST_WORDS = 300
"""Characters of an engine's own words that are repeated."""
_BUSY = (408, 429, 503)
"""Statuses that say that waiting helps."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """An answer, or what was met in place of one."""

    status: int | None
    """None where there is no answer."""
    text: str
    """Its body, or why there is none."""
    refused: bool = False
    """Whether nothing listens on the port."""
    speaks_tls: bool = False
    """Whether the port answers a handshake of TLS, and no HTTP."""

    @property
    def words(self) -> str:
        """The text of the answer, in one line, with at most :data:`LONGEST_WORDS` of its own."""
        own = " ".join(self.text[: 4 * LONGEST_WORDS].split())[:LONGEST_WORDS]
        return own if self.status is None else f"HTTP {self.status}" + (f": {own}" if own else "")


@dataclass(frozen=True, slots=True)
class EngineFault:
    """Why the engine of a running pod does not serve."""

    reason: str
    message: str
    lasting: bool
    """Whether waiting does not help."""


def judge_health(path: str, answer: EngineAnswer, url: str) -> EngineFault | None:
    """What a GET of ``path`` at ``url`` shows of an engine that is not ready; None where it is healthy now."""
    port = urlsplit(url).port
    met = f"GET {path}: {answer.words}"
    if answer.speaks_tls:
        step = "gateways and probes speak HTTP to engines: start it without a certificate"
        return EngineFault("EngineProbeFailed", f"port {port} speaks TLS (HTTPS) and not HTTP; {step}", lasting=True)
    if answer.refused:
        either = f"it loads its model, or listens on another port than {port}"
        return EngineFault("ModelLoading", f"the engine does not listen yet ({met}): {either}", lasting=False)
    if answer.status is None or answer.status >= 500 or answer.status in _BUSY:
        return EngineFault("ModelLoading", f"the engine loads its model ({met})", lasting=False)
    if answer.status >= 400:
        step = f"probes and gateways need a status below 400 at {path}, without a key, once it serves"
        return EngineFault("EngineProbeFailed", f"{met}; {step}", lasting=True)
    return None


def judge_request(what: str, answer: EngineAnswer, *, keyed: bool) -> EngineFault | None:
    """Why an engine that is ready refuses the request ``what``; None where it does not, or that is not known.

    ``keyed``: the request had the key of a gateway. Without one, clients may have a key that the operator has not.
    """
    status = answer.status
    if status is None or status < 400 or status in _BUSY:
        return None
    if status in (401, 403):
        if not keyed:
            return None
        step = "gateways send it their own key alone: start it without a key of its own"
    elif status < 500:
        named = "engine.runtime.upstreamModel is for a server of type OpenAI that has it under a name of its own"
        step = f"see whether it generates text, and which models it lists at /v1/models; {named}"
    else:
        step = "see its log"
    return EngineFault("EngineRefusesRequests", f"{what}: {answer.words}; {step}", lasting=True)
