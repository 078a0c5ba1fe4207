"""A stream whose frames come behind lines of a journal, with which another replica can continue it; pure."""

import re
from dataclasses import replace

from paternoster_contract.stream_journal import COMMENT, DRAINING, FAILED, HAND_OVER, MAX_JOURNAL_BYTES, RESUME, Resume
from paternoster_gateway.proxy.call import Call

MAX_FRAME_BYTES = 16 * 2**20
"""Of one frame: the last one of a response has the whole answer, with log probabilities if the client wants them."""
MAX_CONTINUATIONS = 16
"""Replicas in turn that go on with one stream, or one whole answer, and send nothing of it."""

_END = b"\n\n"
_NUMERICS = re.compile(r"[!-~]{1,64}")


class FrameTooLong(Exception):
    """No engine writes such a frame."""


class JournaledStream:
    """Takes the journal out of a stream's bytes, and keeps what another replica needs to go on with it."""

    __slots__ = (
        "_buffer", "_frames_at_start", "_journal", "_journal_is_whole", "_num_continuations", "handed_over",
        "num_frames", "numerics", "replica_drains", "step_failed",
    )  # fmt: skip

    def __init__(self, numerics: str, journal: bytes = b"") -> None:
        """``numerics``: what the replicas of one stream have in common. ``journal``: of the part before any frame."""
        self.numerics = numerics
        self.num_frames = 0
        """Frames that the client has."""
        self.handed_over = False
        """Whether the replica asked for another one to go on."""
        self.step_failed = False
        """Whether it did so because a step failed that computed the stream."""
        self.replica_drains = False
        """Whether the replica admits nothing more, and goes on with the stream until another one has it."""
        self._buffer = bytearray()
        self._journal = bytearray(journal + b"\n" if journal else b"")
        """Lines, each with its end."""
        self._journal_is_whole = True
        self._num_continuations = 0
        self._frames_at_start = -1

    @staticmethod
    def can_begin(numerics: str | None) -> bool:
        """Whether ``numerics``, the header of an answer, is one that an engine sends with a journal."""
        return numerics is not None and _NUMERICS.fullmatch(numerics) is not None

    def feed(self, data: bytes) -> bytes:
        """The whole frames that end in ``data``, for the client. Raises :class:`FrameTooLong`."""
        line, _, frame = data.partition(b"\n")
        is_frame = data.find(_END) == len(data) - len(_END) > len(line)
        if is_frame and line.startswith(COMMENT) and not self._buffer and not self.handed_over:
            # As nearly every piece is.
            self.num_frames += 1
            self._store_line(line)
            return frame
        searched = max(0, len(self._buffer) - 1)
        self._buffer += data
        end = self._buffer.rfind(_END, searched)
        if end < 0:
            if len(self._buffer) > MAX_FRAME_BYTES:
                raise FrameTooLong(f"a frame of more than {MAX_FRAME_BYTES} bytes")
            return b""
        frames = bytes(self._buffer[:end]).split(_END)
        del self._buffer[: end + len(_END)]
        return b"".join([self._read_frame(frame) for frame in frames if not self.handed_over])

    @property
    def can_continue(self) -> bool:
        """Whether one more replica may go on with the stream."""
        return self._num_continuations < MAX_CONTINUATIONS and self._journal_is_whole

    def switch_replica(self) -> None:
        """Read on from another replica, which makes the frame that follows those that the client has."""
        self.handed_over = self.step_failed = self.replica_drains = False
        self._buffer.clear()
        self._num_continuations = self._num_continuations + 1 if self.is_suspected else 1
        self._frames_at_start = self.num_frames

    @property
    def is_suspected(self) -> bool:
        """Whether it may be why its replica stopped: that one went on with it, and sent no frame."""
        return self.num_frames == self._frames_at_start

    @property
    def journal(self) -> bytes:
        """The lines so far."""
        return bytes(self._journal).removesuffix(b"\n")

    def build_resumption(self, call: Call) -> Call:
        """``call`` as the next replica gets it."""
        journal = self.journal
        resume = Resume(self.num_frames, len(journal), self.numerics)
        return replace(call, body=call.body + journal, headers={**call.headers, RESUME: resume.encode()})

    def _read_frame(self, frame: bytes) -> bytes:
        if frame == HAND_OVER:
            self.handed_over = True
            return b""
        if frame == FAILED:
            self.step_failed = True
            return b""
        if frame == DRAINING:
            self.replica_drains = True
            return b""
        self.num_frames += 1
        if frame.startswith(COMMENT):
            line, _, frame = frame.partition(b"\n")
            self._store_line(line)
        return frame + _END

    def _store_line(self, line: bytes) -> None:
        """``line`` begins with :data:`COMMENT`."""
        journal = self._journal
        journal += line[len(COMMENT) :]
        journal += b"\n"
        if len(journal) > MAX_JOURNAL_BYTES:
            self._journal_is_whole = False
            journal.clear()
