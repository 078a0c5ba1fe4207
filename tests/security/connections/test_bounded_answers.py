"""Answers of hostile servers end once they cost more pieces than their bytes are worth."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from paternoster_http import bounded_answers
from paternoster_http.bounded_answers import (
    BYTES_PER_LINE,
    FREE_LINES,
    MAX_HEAD_BYTES,
    READ_BUFFER,
    bounded_connector,
)

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\n\r\n"
Fetch = Callable[[], Awaitable[bytes]]


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[str]:
    """The URL of a server that answers each request with ``pieces`` and then waits."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()

    server = await asyncio.start_server(serve, sock=socket.create_server(("127.0.0.1", 0)))
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def read(url: str, requests: int = 1) -> bytes:
    """The body of the last of ``requests`` answers."""
    session = aiohttp.ClientSession(connector=bounded_connector(), read_bufsize=READ_BUFFER)
    async with asyncio.timeout(20), session:
        for _ in range(requests):
            async with session.get(url) as response:
                body = await response.read()
    return body


def chunks(data: bytes, size: int) -> bytes:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


@pytest.mark.parametrize("size", [1, 3, 8])
async def test_an_answer_in_tiny_chunks_is_ended(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    parsed = 0
    receive = bounded_answers.ResponseHandler.data_received

    def count(handler: bounded_answers.ResponseHandler, data: bytes) -> None:
        nonlocal parsed
        parsed += data.count(b"\n")
        receive(handler, data)

    monkeypatch.setattr(bounded_answers.ResponseHandler, "data_received", count)
    async with answering(HEAD, *[chunks(b"a" * 100_000, size)] * 100) as url:
        with pytest.raises(aiohttp.ClientPayloadError, match="too small pieces"):
            await read(url)
    assert parsed <= 2 * FREE_LINES + bounded_answers.SLICE


async def test_an_answer_of_events_is_read_whole_and_the_connection_used_again() -> None:
    event = b"event: content_block_delta\ndata: " + b'{"type":"content_block_delta","index":0,"delta":{}}' + b"\n\n"
    body = event * 5000
    async with answering(HEAD, chunks(body, len(event)), b"0\r\n\r\n") as url:
        assert await read(url, requests=3) == body


async def test_a_long_answer_that_is_read_slowly_is_whole() -> None:
    body = bytes(range(256)) * 20_000
    async with answering(HEAD, chunks(body, 65_536), b"0\r\n\r\n") as url:
        session = aiohttp.ClientSession(connector=bounded_connector(), read_bufsize=READ_BUFFER)
        found = bytearray()
        async with session, session.get(url) as response:
            while data := await response.content.read(50_000):
                found += data
                await asyncio.sleep(0)
        assert found == body


async def test_a_short_answer_may_have_short_lines() -> None:
    body = b"\n" * (FREE_LINES // 4)
    async with answering(HEAD, chunks(body, 1), b"0\r\n\r\n") as url:
        assert len(body) * 3 < FREE_LINES + len(body) * 6 // BYTES_PER_LINE
        assert await read(url) == body


async def test_some_interim_answers_are_skipped() -> None:
    async with answering(INTERIM * 8, HEAD, b"2\r\nup\r\n0\r\n\r\n") as url:
        assert await read(url, requests=2) == b"up"


@pytest.mark.parametrize("interim", [INTERIM, INTERIM[:-2] + b"Link: " + b"a" * 200 + b"\r\n\r\n"])
async def test_interim_answers_without_an_end_are_ended(interim: bytes) -> None:
    async with answering(*[interim * 1000] * 100) as url:
        with pytest.raises(aiohttp.ClientPayloadError, match="more than 8 interim answers"):
            await read(url)


async def test_a_head_that_is_too_long_is_ended_and_one_within_the_bound_is_not() -> None:
    def head(count: int) -> bytes:
        fields = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 1000) for number in range(count))
        return b"HTTP/1.1 200 OK\r\n" + fields + b"Content-Length: 2\r\n\r\nok"

    async with answering(head(MAX_HEAD_BYTES // 1024)) as url:
        assert await read(url, 2) == b"ok"
    async with answering(head(120)) as url:
        with pytest.raises(aiohttp.ClientPayloadError, match=f"more than {MAX_HEAD_BYTES} bytes"):
            await read(url)


async def test_a_chunk_without_a_size_ends_an_answer_that_is_read_late() -> None:
    """aiohttp leaves such a body open, and raises ``RuntimeError``, which no reader of an answer expects."""
    async with answering(HEAD + chunks(b"a" * 16_000, 64), b"zz\r\n") as url:
        session = aiohttp.ClientSession(connector=bounded_connector(), read_bufsize=READ_BUFFER)
        async with asyncio.timeout(20), session, session.get(url) as response:
            while (connection := response.connection) is not None and connection.protocol.connected:
                await asyncio.sleep(0.01)
            with pytest.raises(aiohttp.ClientPayloadError, match="before the answer was whole"):
                await response.read()
