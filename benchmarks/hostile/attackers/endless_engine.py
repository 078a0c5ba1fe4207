"""An engine in an attacker's hands, whose answers make a gateway keep what does not end: journals, frames, heads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from hostile.attackers.dribbling_engine import read_bodies
from paternoster_contract.stream_journal import COMMENT, JOURNAL, MAX_JOURNAL_BYTES, PROGRESS_MEDIA_TYPE
from paternoster_gateway.call.journaled_stream import MAX_FRAME_BYTES

PIECE = 65_536
HOLD_SECONDS = 3600.0
"""For which it leaves an answer open that is as long as a gateway reads it."""
LINE = b"[[0,null,[" + b",".join([b"12345"] * 150) + b"]]]"
SHORT_LINE = b"[[0,null,[123]]]"
"""Line with the fewest bytes that a gateway reads."""
HEADERS, HEADER_BYTES = 100, 8000
"""Headers of a long head; each is one that HTTP clients accept."""


async def write_journal() -> AsyncIterator[bytes]:
    """A journal before a whole answer that never comes."""
    lines = (SHORT_LINE + b"\n") * (PIECE // len(SHORT_LINE))
    while True:
        yield lines


async def write_held_journal() -> AsyncIterator[bytes]:
    """Nearly as long a journal as is kept, before a whole answer that does not come."""
    line = SHORT_LINE + b"\n"
    yield line * (MAX_JOURNAL_BYTES // len(line) - 1)
    await asyncio.sleep(HOLD_SECONDS)


async def write_frame() -> AsyncIterator[bytes]:
    """The longest frame but for its end."""
    yield b"data: "
    for _ in range(MAX_FRAME_BYTES // PIECE - 1):
        yield b"a" * PIECE
    await asyncio.sleep(HOLD_SECONDS)


async def write_stream() -> AsyncIterator[bytes]:
    """Frames with nearly as long a journal as is kept."""
    frame = COMMENT + LINE + b"\ndata: {}\n\n"
    for _ in range(MAX_JOURNAL_BYTES // len(LINE) - 2):
        yield frame
    await asyncio.sleep(HOLD_SECONDS)


EVENTS = "text/event-stream"
KINDS: Mapping[str, tuple[str, Callable[[], AsyncIterator[bytes]]]] = {
    "endless journal": (PROGRESS_MEDIA_TYPE, write_journal),
    "held journal": (PROGRESS_MEDIA_TYPE, write_held_journal),
    "endless frame": (EVENTS, write_frame),
    "long journal": (EVENTS, write_stream),
    "long head": (EVENTS, write_stream),
}
"""Media type and body of the answer to a request whose body has the name."""


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection."""
    async for body in read_bodies(reader, writer):
        kind = next(name for name in KINDS if name.encode() in body)
        media_type, write = KINDS[kind]
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\n{JOURNAL}: fp\r\n".encode())
        if kind == "long head":
            writer.writelines(b"X-%d: %b\r\n" % (number, b"a" * HEADER_BYTES) for number in range(HEADERS))
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        async for piece in write():
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
