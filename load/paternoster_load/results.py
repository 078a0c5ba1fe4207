"""Requests of a benchmark, and what came of each."""

from dataclasses import dataclass, field
from enum import StrEnum


class RequestEnd(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    """The stream has a finish reason and closed properly."""
    REFUSED = "refused"
    """The server answered with an error it explains, as a response or as an event of the stream."""
    LOST = "lost"
    """Neither: no connection, no answer in time, a stream cut off, or an error without an explanation."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One request to send."""

    index: int
    prompt: list[int] | str
    max_tokens: int
    arrival_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        """Tokens asked for; 0 where only the server can count them."""
        return len(self.prompt) if isinstance(self.prompt, list) else 0


@dataclass(slots=True)
class RequestResult:
    """The result of one request."""

    index: int
    start: float
    prompt_tokens: int
    outcome: RequestEnd = RequestEnd.LOST
    error: str = ""
    status: int | None = None
    output_tokens: int = 0
    ttft: float | None = None
    """Seconds from sending to the first token."""
    itls: list[float] = field(default_factory=list)
    """Seconds between one chunk of tokens and the next."""
    latency: float = 0.0
    """Seconds from sending to the last byte."""

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None below two tokens."""
        if self.ttft is None or self.output_tokens < 2:
            return None
        return (self.latency - self.ttft) / (self.output_tokens - 1)
