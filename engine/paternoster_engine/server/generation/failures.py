"""What clients are answered for sequences that fail."""

from collections.abc import Mapping

from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.server.errors import (
    CorruptedOutput,
    DeadlineExceeded,
    EngineEnding,
    GrammarTooComplex,
    NothingAllowed,
    StepFailed,
)

FAILURES: Mapping[FinishReason, type[Exception]] = {
    FinishReason.ERROR: StepFailed,
    FinishReason.TIMEOUT: DeadlineExceeded,
    FinishReason.ABORT: EngineEnding,
}
"""The error that a client gets for a sequence that ended without a token."""


def failure_of(request: Request, reason: FinishReason) -> Exception:
    """What the client of a request that ended for ``reason``, one of :data:`FAILURES`, is answered."""
    if request.matcher is not None and request.matcher.fault is not None:
        return GrammarTooComplex(request.matcher.fault)
    if request.fault is not None:
        return NothingAllowed(f"The answer cannot go on: {request.fault}")
    return CorruptedOutput() if request.corrupted else FAILURES[reason]()
