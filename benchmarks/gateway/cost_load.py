"""Requests of three kinds to a proxy, and the processor time that its processes take for them."""

import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from gateway.prompt_cost import body_of
from gateway.proxies import MODEL, Proxy
from harness.fake_engine import CHAT, EVENT, RawEngine
from harness.processes import cpu_seconds

SMALL, LARGE, CHUNK = "small", "large", "chunk"
KINDS = (SMALL, LARGE, CHUNK)
SMALL_BYTES, LARGE_BYTES = 200, 400_000
"""Sizes of a body, about."""
SETTLING_SECONDS = 0.1
"""For what a proxy does after an answer."""
STALL_SECONDS = 120.0
"""Without an answer or a frame, after which a proxy counts as failed."""
_NUMBERS = itertools.count()
_CONTENT = b'"content": "'


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of each kind a turn has."""

    small: int
    large: int
    streams: int
    frames: int
    """Frames of each stream, after those that are not counted."""
    connections: int
    """For whole answers."""


def body_around(size: int, **fields: object) -> tuple[bytes, bytes]:
    """A chat in two parts, between which what is written makes its prompt another one."""
    head, separator, tail = (
        json.dumps({"model": MODEL, **fields, "messages": json.loads(body_of(size))["messages"]})
        .encode()
        .partition(_CONTENT)
    )
    return head + separator, tail


class Connection(asyncio.Protocol):
    """Sends a proxy one request after another."""

    def __init__(self) -> None:
        self.events = 0
        """Frames of the latest answer so far."""
        self.came = asyncio.Event()
        """Set with each piece of an answer."""
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[None] | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass

    def send_request(self, request: Sequence[bytes]) -> asyncio.Future[None]:
        """Done once the answer is whole; raises :class:`RuntimeError` for any status but 200."""
        assert self._transport is not None
        self._data, self.events = b"", 0
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        unread = max(0, len(self._data) - len(EVENT) + 1)
        self._data += data
        self.events += self._data.count(EVENT, unread)
        head, ended, body = self._data.partition(b"\r\n\r\n")
        if ended and not head.startswith(b"HTTP/1.1 200"):
            self._end(RuntimeError(f"answered {self._data[:1000]!r}"))
        elif ended and _is_whole(head, body):
            self._end(None)
        self.came.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the proxy closed a connection"))
        self.came.set()

    async def await_events(self, count: int) -> None:
        """Until the latest answer has as many; raises what ended the connection before."""
        while self.events < count:
            if self._answer is not None and self._answer.done():
                self._answer.result()
            self.came.clear()
            await self.came.wait()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def _end(self, error: Exception | None) -> None:
        if self._answer is None or self._answer.done():
            return
        if error is None:
            self._answer.set_result(None)
        else:
            self._answer.set_exception(error)


def _is_whole(head: bytes, body: bytes) -> bool:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return body.endswith(b"0\r\n\r\n")


class Load:
    """Requests to one proxy, on connections of its own."""

    def __init__(self, proxy: Proxy, engine: RawEngine) -> None:
        self._proxy = proxy
        self._engine = engine
        self._bodies = {
            SMALL: body_around(SMALL_BYTES),
            LARGE: body_around(LARGE_BYTES),
            CHUNK: body_around(SMALL_BYTES, stream=True),
        }

    async def measure(self, kind: str, amounts: Amounts) -> float:
        """Processor seconds of the proxy for each request of ``kind``, or for each frame."""
        if kind == CHUNK:
            return await self._measure_frames(amounts)
        count = amounts.small if kind == SMALL else amounts.large
        connections = [await self._connect() for _ in range(min(amounts.connections, count))]
        before = self._read_seconds()
        requests = iter(range(count))

        async def send_requests(connection: Connection) -> None:
            for _ in requests:
                async with asyncio.timeout(STALL_SECONDS):
                    await connection.send_request(self._request(kind))

        await asyncio.gather(*map(send_requests, connections))
        await asyncio.sleep(SETTLING_SECONDS)
        each = (self._read_seconds() - before) / count
        for connection in connections:
            connection.close()
        return each

    async def _measure_frames(self, amounts: Amounts) -> float:
        connections = [await self._connect() for _ in range(amounts.streams)]
        answers = [connection.send_request(self._request(CHUNK)) for connection in connections]
        await self._await_events(connections, 1)
        before = self._read_seconds()
        try:
            for number in range(amounts.frames):
                self._engine.write_frames()
                await self._await_events(connections, 2 + number)
            each = (self._read_seconds() - before) / (amounts.frames * amounts.streams)
        finally:
            self._engine.end_streams()
        async with asyncio.timeout(STALL_SECONDS):
            await asyncio.gather(*answers)
        for connection in connections:
            connection.close()
        return each

    def _read_seconds(self) -> float:
        """Processor time of the proxy's processes."""
        return sum(cpu_seconds(each.pid, children=True) for each in (self._proxy.server, *self._proxy.beside))

    async def _await_events(self, connections: Sequence[Connection], count: int) -> None:
        async with asyncio.timeout(STALL_SECONDS):
            for connection in connections:
                await connection.await_events(count)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self._proxy.server.port)
        return connection

    def _request(self, kind: str) -> list[bytes]:
        """With a prompt that none before had."""
        first, last = self._bodies[kind]
        number = b"%012d " % next(_NUMBERS)
        size = len(first) + len(number) + len(last)
        own = "".join(f"{name}: {value}\r\n" for name, value in self._proxy.headers.items())
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{own}"
        return [f"{head}Content-Length: {size}\r\n\r\n".encode(), first, number, last]
