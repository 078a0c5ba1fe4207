"""A stream whose frames come behind lines of a journal, with which another replica can continue it; pure."""

import re

from paternoster_contract.request_phases import PHASES_COMMENT, RequestPhases
from paternoster_contract.stream_journal import COMMENT, DRAINING, FAILED, HAND_OVER, MAX_JOURNAL_BYTES
from paternoster_gateway.call.client_call import Call
from paternoster_http.open_requests import OpenRequest, SpareBytes

FREE_BYTES = 4096
"""Bytes of a journal, and of an unfinished frame, that are not counted: the place of a request has room for them."""
HEADROOM = 4
"""Beyond these bytes a part of that many is counted ahead, so that most frames count nothing."""
MAX_FRAME_BYTES = 16 * 2**20
"""Limit for one frame: the last one of a response has the whole answer, with log probabilities where asked for."""
MAX_CONTINUATIONS = 16
"""Replicas in turn that go on with one stream, or one whole answer, and send nothing of it."""

MAX_PHASES_BYTES = 256
"""Limit for the frame that has them."""
_END = b"\n\n"
_LINE_START = len(COMMENT)
_NUMERICS = re.compile(r"[!-~]{1,64}")


class FrameTooLong(Exception):
    """No engine writes such a frame."""


class KeptJournal:
    """Lines of a journal, counted for their request; they are dropped where there are too many, or no room for them."""

    __slots__ = ("_counted", "_lines", "_spare")

    def __init__(self, request: OpenRequest, journal: bytes = b"") -> None:
        """``journal``: the first lines, without the end of the last one."""
        self._spare = SpareBytes(request, self._forget_lines)
        self._lines: bytearray | None = bytearray()
        self._counted = FREE_BYTES
        if journal:
            self.add_lines(journal + b"\n")

    @property
    def is_whole(self) -> bool:
        """Whether nothing was dropped."""
        return self._lines is not None

    def add_lines(self, data: bytes) -> None:
        """``data`` has the end of each line, but for the last one, which may go on in what is added next."""
        if (lines := self._lines) is None:
            return
        lines += data
        if len(lines) > self._counted:
            self._count_lines(len(lines))

    def read_lines(self) -> bytes:
        """Read the whole lines, without the end of the last one."""
        lines = self._lines or b""
        return bytes(lines[: max(0, lines.rfind(b"\n"))])

    def drop_lines(self) -> None:
        """Keep none from now on."""
        self._lines = None
        self._spare.hold_bytes(0)

    def _count_lines(self, size: int) -> None:
        self._counted = min(size + size // HEADROOM, MAX_JOURNAL_BYTES)
        if size > MAX_JOURNAL_BYTES or not self._spare.hold_bytes(self._counted):
            self.drop_lines()

    def _forget_lines(self) -> None:
        self._lines = None


class JournaledStream:
    """Takes the journal out of a stream's bytes, and keeps what another replica needs to go on with it."""

    __slots__ = (
        "_buffer", "_counted", "_frames_at_start", "_journal", "_num_continuations", "_request", "handed_over",
        "num_frames", "numerics", "phases", "replica_drains", "step_failed",
    )  # fmt: skip

    def __init__(self, numerics: str, request: OpenRequest, journal: bytes = b"") -> None:
        """``numerics``: what the replicas of one stream have in common. ``journal``: of the part before any frame.

        ``request``: what counts the bytes that are kept.
        """
        self.numerics = numerics
        self.num_frames = 0
        """Frames that the client has."""
        self.handed_over = False
        """Whether the replica asked for another one to go on."""
        self.step_failed = False
        """Whether it did so because a step failed that computed the stream."""
        self.replica_drains = False
        """Whether the replica admits nothing more, and goes on with the stream until another one has it."""
        self.phases: RequestPhases | None = None
        """Parts of the time at the last replica, once it has made its last frame."""
        self._request = request
        self._buffer = bytearray()
        self._counted = FREE_BYTES
        """Bytes of the buffer that are counted."""
        self._journal = KeptJournal(request, journal)
        self._num_continuations = 0
        self._frames_at_start = -1

    @staticmethod
    def can_begin(numerics: str | None) -> bool:
        """Whether ``numerics``, the header of an answer, is one that an engine sends with a journal."""
        return numerics is not None and _NUMERICS.fullmatch(numerics) is not None

    def feed(self, data: bytes) -> bytes:
        """The whole frames that end in ``data``, for the client.

        Raises :class:`FrameTooLong`, and :class:`Refusal` where there is no room for what is not whole.
        """
        line, _, frame = data.partition(b"\n")
        is_frame = data.find(_END) == len(data) - len(_END) > len(line)
        if is_frame and line.startswith(COMMENT) and not self._buffer and not self.handed_over:
            # As nearly every piece is.
            self.num_frames += 1
            self._journal.add_lines(data[_LINE_START : len(line) + 1])
            return frame
        searched = max(0, len(self._buffer) - 1)
        self._buffer += data
        end = self._buffer.rfind(_END, searched)
        if end < 0:
            if len(self._buffer) > self._counted:
                self._count_buffer()
            return b""
        frames = bytes(memoryview(self._buffer)[:end]).split(_END)
        del self._buffer[: end + len(_END)]
        if self._counted != FREE_BYTES:
            self._count_buffer()
        return b"".join([self._read_frame(frame) for frame in frames if not self.handed_over])

    @property
    def can_continue(self) -> bool:
        """Whether one more replica may go on with the stream."""
        return self._num_continuations < MAX_CONTINUATIONS and self._journal.is_whole

    def switch_replica(self) -> None:
        """Read on from another replica, which makes the frame that follows those that the client has."""
        self.handed_over = self.step_failed = self.replica_drains = False
        self._buffer.clear()
        self._count_buffer()
        self._num_continuations = self._num_continuations + 1 if self.is_suspected else 1
        self._frames_at_start = self.num_frames

    @property
    def is_suspected(self) -> bool:
        """Whether it may be why its replica stopped: that one went on with it, and sent no frame."""
        return self.num_frames == self._frames_at_start

    def build_resumption(self, call: Call) -> Call:
        """``call`` as the next replica gets it; raises :class:`Refusal` where there is no room for a copy of it."""
        lines = self._journal.read_lines()
        self._request.hold_answer("journal", len(lines))
        return call.resume(self.num_frames, self.numerics, lines)

    def drop_buffers(self) -> None:
        """Keep nothing any more."""
        self._buffer.clear()
        self._count_buffer()
        self._journal.drop_lines()

    def _count_buffer(self) -> None:
        size = len(self._buffer)
        if size > MAX_FRAME_BYTES:
            raise FrameTooLong(f"a frame of more than {MAX_FRAME_BYTES} bytes")
        counted = 0 if size <= FREE_BYTES else min(size + size // HEADROOM, MAX_FRAME_BYTES)
        self._request.hold_answer("frame", counted)
        self._counted = counted or FREE_BYTES

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
        if frame.startswith(PHASES_COMMENT):
            self.phases = RequestPhases.decode(frame[len(PHASES_COMMENT) : MAX_PHASES_BYTES].decode("latin-1"))
            return b""
        self.num_frames += 1
        if frame.startswith(COMMENT):
            line, _, frame = frame.partition(b"\n")
            self._journal.add_lines(line[_LINE_START:] + b"\n")
        return frame + _END
