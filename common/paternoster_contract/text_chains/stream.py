"""The stream by which an engine reports which pieces of text chains its prefix cache can serve: frames of bytes. Pure.

``GET /text-chains?instance=HEX&after=N`` with the key that opens the engine's API, on its API port. The answer is
:data:`MEDIA_TYPE` without an end; frames follow one another:

1. One :class:`Hello`. ``hello.resumes`` is true where ``instance`` and ``after`` are of this engine and it still has
   all changes after ``after``. Without, or without both parameters, the index must be emptied, and
2. :class:`Snapshot` frames follow, as many as it takes; the last one has ``last``. The index is the truth of number
   ``sequence`` then. A reader that loses the connection before it has no index.
3. :class:`Changes`, each with the number after the last one's: first ``removed`` is applied, or everything is removed
   where ``cleared`` is true, then ``stored``, which also replaces the tokens of pieces that are there. A number that is
   not the next one means that frames were lost: the reader must connect again, without parameters.
4. :class:`Heartbeat` with the number of the last changes, at least every :data:`HEARTBEAT_SECONDS`. A reader that gets
   no byte for three times as long should connect again, with parameters.

An engine answers 404 where it keeps no text chains: it was started without them, without a prefix cache, or its API is
open to keys of clients, who must not read what others asked. It answers 503 with ``Retry-After`` where it has
:data:`MAX_SUBSCRIBERS` readers already or is ending. It closes the connection of a reader that is too slow.

Each frame is a byte for its type, four for the length of what follows, then that; numbers are big-endian. Readers must
skip frames of types that they do not have. A digest has eight bytes, tokens have four.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paternoster_contract.text_chains.chain import DIGEST_BYTES

MEDIA_TYPE = "application/vnd.paternoster.text-chains"
VERSION = 2
"""Version of frames and digests: chains of version 1 were of BLAKE2b."""
HEARTBEAT_SECONDS = 1.0
MAX_SUBSCRIBERS = 16
MAX_FRAME_BYTES = 2**17
"""Limit for one frame without its head."""
MAX_FRAME_PIECES = 4096
"""Stored and removed pieces of one frame that an engine sends; more are divided, as one change or snapshot may be."""

_HEAD = struct.Struct(">BI")
_SNAPSHOT = struct.Struct(">QB")
_CHANGES = struct.Struct(">QBI")
_NUMBER = struct.Struct(">Q")
_HELLO, _SNAPSHOTS, _CHANGE, _HEARTBEAT = 1, 2, 3, 4


class InvalidStream(ValueError):
    """Bytes that no engine sends; nothing that follows them can be read."""


class Hello(BaseModel):
    """The first frame: which engine this is."""

    model_config = ConfigDict(frozen=True)

    version: int = Field(ge=1, description="of the stream; a reader must not read on where it has another one")
    instance: str = Field(pattern=r"^[0-9a-f]{32}$", description="one start of the engine, at random")
    resumes: bool = Field(description="changes follow those that the reader has; false: a snapshot does")
    model: str = Field(min_length=1, max_length=512, description="served name that scopes of chains begin with")
    isolates_tenants: bool = Field(description="scopes of chains have the tenant")
    block_size: int = Field(ge=1, le=2**20, description="tokens of a block")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Some of the pieces that are cached at one moment."""

    sequence: int
    """Number of the changes after which this is the truth; the same in all frames of a snapshot."""
    stored: Mapping[int, int] = field(default_factory=dict)
    """Prompt tokens that a chain covers, in whole blocks, by digest."""
    last: bool = True


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since the frame before."""

    sequence: int
    stored: Mapping[int, int] = field(default_factory=dict)
    """Prompt tokens that a chain covers, in whole blocks, by digest."""
    removed: Sequence[int] = ()
    """Digests; those that are not in the index are ignored."""
    cleared: bool = False
    """Everything is removed, before ``stored`` is added."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    sequence: int
    """Number of the last changes."""


Frame = Hello | Snapshot | Changes | Heartbeat


def encode_frame(frame: Frame) -> bytes:
    """Raises ``ValueError`` or ``OverflowError`` for numbers that have no place in a frame."""
    match frame:
        case Hello():
            kind, data = _HELLO, frame.model_dump_json().encode()
        case Snapshot():
            kind, data = _SNAPSHOTS, _SNAPSHOT.pack(frame.sequence, frame.last) + _encode_stored(frame.stored)
        case Changes():
            head = _CHANGES.pack(frame.sequence, frame.cleared, len(frame.removed))
            kind, data = _CHANGE, head + _pack_numbers("Q", frame.removed) + _encode_stored(frame.stored)
        case Heartbeat():
            kind, data = _HEARTBEAT, _NUMBER.pack(frame.sequence)
    if len(data) > MAX_FRAME_BYTES:
        raise ValueError(f"the frame has {len(data)} bytes: at most {MAX_FRAME_BYTES}")
    return _HEAD.pack(kind, len(data)) + data


def encode_snapshot(pieces: Mapping[int, int], sequence: int) -> Iterator[bytes]:
    """The frames of a snapshot of ``pieces``, tokens by digest."""
    numbers = list(pieces.items())
    for start in range(0, max(1, len(numbers)), MAX_FRAME_PIECES):
        part = dict(numbers[start : start + MAX_FRAME_PIECES])
        yield encode_frame(Snapshot(sequence, part, start + MAX_FRAME_PIECES >= len(numbers)))


class FrameReader:
    """Reads frames from the bytes of one connection; holds at most one frame that is not whole."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def num_bytes(self) -> int:
        """Length of what was fed and is of no frame that was yielded."""
        return len(self._data)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Append ``data``; yields the frames that it completes.

        Raises :class:`InvalidStream`, and nothing else, for bytes that are not of a stream; the reader is of no use
        then.
        """
        self._data += data
        start = 0
        try:
            while len(self._data) - start >= _HEAD.size:
                kind, length = _HEAD.unpack_from(self._data, start)
                if length > MAX_FRAME_BYTES:
                    raise InvalidStream(f"a frame has {length} bytes: at most {MAX_FRAME_BYTES}")
                end = start + _HEAD.size + length
                if end > len(self._data):
                    break
                body = bytes(self._data[start + _HEAD.size : end])
                start = end
                frame = _decode_frame(kind, body)
                if frame is not None:
                    yield frame
        finally:
            del self._data[:start]


def _decode_frame(kind: int, body: bytes) -> Frame | None:
    try:
        match kind:
            case 1:
                return Hello.model_validate_json(body)
            case 2:
                sequence, last = _SNAPSHOT.unpack_from(body)
                return Snapshot(sequence, _decode_stored(body, _SNAPSHOT.size), _read_flag(last))
            case 3:
                sequence, cleared, count = _CHANGES.unpack_from(body)
                end = _CHANGES.size + count * DIGEST_BYTES
                if end > len(body):
                    raise InvalidStream(f"a frame of {len(body)} bytes has {count} removed pieces")
                removed = _unpack_numbers("Q", body[_CHANGES.size : end])
                return Changes(sequence, _decode_stored(body, end), tuple(removed), _read_flag(cleared))
            case 4:
                return Heartbeat(*_NUMBER.unpack(body))
            case _:
                return None
    except (struct.error, ValidationError) as error:
        raise InvalidStream(f"a frame of type {kind} and {len(body)} bytes is not of its form") from error


def _read_flag(value: int) -> bool:
    if value > 1:
        raise InvalidStream(f"a flag is {value}: must be 0 or 1")
    return value == 1


def _encode_stored(stored: Mapping[int, int]) -> bytes:
    """All digests, then the tokens of each."""
    return _pack_numbers("Q", stored.keys()) + _pack_numbers("I", stored.values())


def _decode_stored(body: bytes, start: int) -> dict[int, int]:
    count, rest = divmod(len(body) - start, DIGEST_BYTES + 4)
    if rest:
        raise InvalidStream(f"{len(body) - start} bytes of stored pieces: must be a multiple of {DIGEST_BYTES + 4}")
    middle = start + count * DIGEST_BYTES
    return dict(zip(_unpack_numbers("Q", body[start:middle]), _unpack_numbers("I", body[middle:]), strict=True))


def _pack_numbers(code: Literal["Q", "I"], numbers: Iterable[int]) -> bytes:
    packed = array(code, numbers)
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


def _unpack_numbers(code: Literal["Q", "I"], data: bytes) -> "array[int]":
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
