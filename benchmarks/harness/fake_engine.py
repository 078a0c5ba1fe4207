"""An engine of bytes, for measurements beside which the shared fake engine would take too much processor time.

It parses no more of a request than its length, and answers with bytes that are ready.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

CHAT = "/v1/chat/completions"
EVENT = b"data: {"
"""How a frame begins."""
DONE = b"data: [DONE]\n\n"
CHUNK = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"m","choices":[{"index":0,"delta":{"content":" the"},"finish_reason":null}],'
    b'"system_fingerprint":"fp_0123456789ab"}\n\n'
)
READ_BYTES = 4096
"""Bytes of a body in which its ``stream`` is looked for; the rest is counted only."""
ANSWER = json.dumps(
    {
        "id": "chatcmpl-0", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a" * 100}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 50, "completion_tokens": 25, "total_tokens": 75},
    }
).encode()  # fmt: skip
MODELS = json.dumps({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "stub"}]}).encode()


async def read_requests(reader: asyncio.StreamReader) -> AsyncIterator[tuple[str, str, bytes]]:
    """Method, path and body of a connection's requests, until it ends."""
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            method, path, _ = head.split(b" ", 2)
            yield method.decode(), path.decode(), await reader.readexactly(_content_length(head))


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def serve_connections(answer: Answer, *ports: int) -> None:
    """Listen until killed, and have ``answer`` end each connection, which is closed after it."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await answer(reader, writer)
        writer.close()

    async def listen() -> None:
        servers = [await asyncio.start_server(connected, "127.0.0.1", port, backlog=4096) for port in ports]
        await asyncio.gather(*(server.serve_forever() for server in servers))

    asyncio.run(listen())


class RawEngine:
    """Answers chats on each port that it serves, whole or as streams whose frames a caller writes."""

    def __init__(self) -> None:
        self.streams: set[EngineConnection] = set()
        """Connections that are open."""

    async def serve(self, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: EngineConnection(self.streams), "127.0.0.1", port, backlog=1024)

    def write_frames(self) -> None:
        """One to each stream."""
        for stream in self.streams:
            stream.write_frame(CHUNK)

    def end_streams(self) -> None:
        for stream in list(self.streams):
            stream.end_stream()


class EngineConnection(asyncio.Protocol):
    """Reads requests, one after another, each with a length; a stream has a frame at once, and others from callers."""

    def __init__(self, streams: set["EngineConnection"]) -> None:
        self._streams = streams
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        """A head, then the first bytes of a body."""
        self._head = b""
        self._missing = 0
        """Bytes of the body that have not come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self._streams.discard(self)

    def data_received(self, data: bytes) -> None:
        if not self._head:
            self._buffer += data
            head, ended, data = self._buffer.partition(b"\r\n\r\n")
            if not ended:
                return
            self._head, self._buffer, self._missing = head, b"", _content_length(head)
        self._missing -= len(data)
        self._buffer += data[: READ_BYTES - len(self._buffer)]
        if self._missing <= 0:
            head, body = self._head, self._buffer
            self._head = self._buffer = b""
            self._answer(head, body)

    def write_frame(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(b"%x\r\n%b\r\n" % (len(frame), frame))

    def end_stream(self) -> None:
        assert self._transport is not None
        self.write_frame(DONE)
        self._transport.write(b"0\r\n\r\n")
        self._streams.discard(self)

    def _answer(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        if not head.startswith(b"POST " + CHAT.encode()):
            serves = head.startswith((b"GET /health", b"GET /v1/models"))
            self._transport.write(_whole_answer(b"200 OK" if serves else b"404 Not Found", MODELS))
        elif b'"stream":true' in body.replace(b" ", b""):
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            self._streams.add(self)
            self.write_frame(CHUNK)
        else:
            self._transport.write(_whole_answer(b"200 OK", ANSWER))


def _whole_answer(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
