"""The journal of a stream: recorded while it runs, replayed where it goes on."""

from asyncio import Event
from collections.abc import AsyncIterator, Callable, Sequence

from paternoster_contract.request_phases import PHASES_COMMENT, RequestPhases
from paternoster_contract.stream_journal import (
    COMMENT,
    DRAINING,
    FAILED,
    HAND_OVER,
    JournalEntry,
    Resume,
    TokenAlternatives,
    encode_entries,
)
from paternoster_engine.core.request import FinishReason, Request, TokenLogprobs
from paternoster_engine.server.continuation.stream_call import current_call
from paternoster_engine.server.errors import EngineEnding, OtherNumerics, StepFailed

CONTINUABLE = (EngineEnding, StepFailed)
"""Failures of the engine, in which the request has no part that is known."""


class StreamJournal:
    """Journal of the answer to one call; that of a whole answer is written only where another engine continues it."""

    def __init__(
        self,
        numerics: str,
        vocab_size: int,
        draining: Event,
        resume: Resume | None = None,
        entries: Sequence[JournalEntry] = (),
    ) -> None:
        """``numerics``: what decides which numbers are computed. ``draining``: set while the engine admits nothing.

        ``resume``, ``entries``: what the client has, and what the engines before this one computed.
        """
        self.numerics = numerics
        self.vocab_size = vocab_size
        self.entries = entries
        self.is_continuation = resume is not None
        """Whether another engine admitted the call."""
        self.is_unanswered = resume is None or resume.num_frames == 0
        """Whether the client has no frame, of this engine or of one before."""
        self.failure: Exception | None = None
        """Why the engine cannot go on with the stream."""
        self._draining = draining
        self._num_frames = 0 if resume is None else resume.num_frames
        self._recorded: list[JournalEntry] = []

    @classmethod
    def of_call(cls, numerics: str, vocab_size: int, draining: Event) -> "StreamJournal | None":
        """None for a call without an id of the gateway.

        Raises :class:`OtherNumerics` where the stream began at an engine that computes other numbers, and
        :class:`InvalidValue` for a journal that no engine wrote.
        """
        call = current_call.get()
        if call is None:
            return None
        if call.resume is None:
            return cls(numerics, vocab_size, draining)
        if call.resume.numerics != numerics:
            raise OtherNumerics(call.resume.numerics, numerics)
        return cls(numerics, vocab_size, draining, call.resume, call.decode_journal())

    def record_entry(self, entry: JournalEntry) -> None:
        self._recorded.append(entry)

    async def write_frames(
        self, frames: AsyncIterator[str], phases: Callable[[], RequestPhases | None]
    ) -> AsyncIterator[bytes]:
        """Each of ``frames`` that the client lacks, behind its line of the journal, and once ``phases``."""
        missing, announced, written = -self._num_frames, False, False
        self.is_unanswered = False
        async for frame in frames:
            missing += 1
            if missing <= 0:
                continue
            if isinstance(self.failure, CONTINUABLE):
                if isinstance(self.failure, StepFailed):
                    yield FAILED + b"\n\n"
                yield HAND_OVER + b"\n\n"
                return
            if self._draining.is_set() and not announced:
                announced = True
                yield DRAINING + b"\n\n"
            if not written and (found := phases()) is not None:
                written = True
                yield PHASES_COMMENT + found.encode().encode() + b"\n\n"
            recorded, self._recorded = self._recorded, []
            line = COMMENT + encode_entries(recorded).encode() + b"\n" if recorded else b""
            yield line + frame.encode()


def entry_of(
    choice: int, request: Request, first: int, tokens: Sequence[int], reason: FinishReason | None
) -> JournalEntry:
    """``first``: index of the first of ``tokens`` in the request's output."""
    logprobs: Sequence[TokenLogprobs] = ()
    if request.params.logprobs is not None:
        logprobs = request.logprobs[first : first + len(tokens)]
    alternatives = tuple(TokenAlternatives(each.logprob, each.rank, each.top) for each in logprobs)
    return JournalEntry(choice, tuple(tokens), None if reason is None else reason.value, alternatives)
