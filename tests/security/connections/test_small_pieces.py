"""A body costs a call for each piece that it comes in: pieces are bounded as bytes are."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.security.raw_http import POST

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.protocol import BYTES_PER_PIECE, FREE_PIECES, LimitedHttpProtocol
from paternoster_http.server import LimitedServer

CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without reading the body, as to a request without a key."""
    await PlainTextResponse("no", 401)(scope, receive, send)


@asynccontextmanager
async def serving(app: object) -> AsyncIterator[int]:
    server = LimitedServer(app, HttpLimits(), lifespan="off", timeout_graceful_shutdown=1)  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        await running


def chunked(count: int, size: int) -> bytes:
    return (b"%x\r\n" % size + b"a" * size + b"\r\n") * count


async def exchange(port: int, data: bytes) -> bytes:
    """What comes back until the server closes."""

    def talk() -> bytes:
        found = b""
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            try:
                client.sendall(data)
                while more := client.recv(65_536):
                    found += more
            except ConnectionError:
                pass
        return found

    return await asyncio.to_thread(talk)


CLOSING = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(("count", "size"), [(FREE_PIECES, 1), (60_000, BYTES_PER_PIECE), (64, 65_536)])
async def test_a_body_of_so_many_pieces_is_read_whole(count: int, size: int) -> None:
    async with serving(read_all) as port:
        answer = await exchange(port, CLOSING + chunked(count, size) + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n%d" % (count * size))


@pytest.mark.parametrize("size", [1, 16])
async def test_a_body_of_more_is_refused_once_they_are_too_many(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    pieces = 0
    on_body = LimitedHttpProtocol.on_body

    def count(protocol: LimitedHttpProtocol, body: bytes) -> None:
        nonlocal pieces
        pieces += 1
        on_body(protocol, body)

    monkeypatch.setattr(LimitedHttpProtocol, "on_body", count)
    async with serving(read_all) as port:
        answer = await exchange(port, CHUNKED + chunked(100_000, size))
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"too small pieces" in answer
    assert pieces <= 2 * FREE_PIECES


async def test_a_body_that_is_not_read_is_bounded_too() -> None:
    """The answer has been sent: the connection is closed."""
    async with serving(refuse) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED)
        async with asyncio.timeout(20):
            assert (await reader.readline()).startswith(b"HTTP/1.1 401")
            writer.write(chunked(100_000, 1))
            with suppress(ConnectionError):
                assert b"HTTP/1.1" not in await reader.read()
        writer.close()


async def test_segments_of_a_byte_count_as_pieces() -> None:
    async with serving(read_all) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST + b"Content-Length: 1000000\r\n\r\n")
        async with asyncio.timeout(20):
            while not reader.at_eof():
                writer.write(b"a")
                await asyncio.sleep(0)  # the server, in the same loop, reads it
                if writer.is_closing() or reader._buffer:  # type: ignore[attr-defined]
                    break
            answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"too small pieces" in answer


async def test_pieces_read_together_are_given_on_as_one() -> None:
    pieces: list[int] = []

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        more = True
        while more:
            message = await receive()
            pieces.append(len(message.get("body", b"")))
            more = message.get("more_body", False)
        await PlainTextResponse("read")(scope, receive, send)

    async with serving(count) as port:
        await exchange(port, CLOSING + chunked(FREE_PIECES, 1) + b"0\r\n\r\n")
    assert sum(pieces) == FREE_PIECES
    assert len(pieces) < 64
