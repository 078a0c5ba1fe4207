"""An engine in an attacker's hands: it answers in single bytes or small chunks, after any number of 103 responses."""

import asyncio
from collections.abc import AsyncIterator

from harness.fake_engine import read_requests

EARLY_HINTS = 2_000
"""Informational responses before an answer to a path that ends in ``hints``."""
CHUNKS = 200_000
"""Chunks of other answers; each has one byte."""
SMALL_CHUNK = b":" * 31 + b"\n"
"""Each chunk of an answer to a body with ``small chunks``."""


async def read_bodies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[bytes]:
    """Bodies of a connection's requests, until it ends: probes get an honest answer."""
    async for method, _, body in read_requests(reader):
        if method == "GET":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        else:
            yield body


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection."""
    async for body in read_bodies(reader, writer):
        if b'"hints"' in body:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * EARLY_HINTS)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = SMALL_CHUNK if b'"small chunks"' in body else b":"
        for _ in range(CHUNKS // 1000):
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) * 1000)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
