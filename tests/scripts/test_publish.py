"""The relay that puts a cluster's gateway on this machine's loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from paternoster_e2e import publish

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def relayed(where: publish.Address | None) -> AsyncIterator[publish.Address]:
    """Yields the relay's own address."""
    listener = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(publish.relay(listener, lambda: where))
    try:
        yield listener.getsockname()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_both_directions_and_what_is_said_after_the_client_has_finished() -> None:
    async def echo_when_all_is_said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        data = await reader.read()
        writer.write(data)
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(echo_when_all_is_said, "127.0.0.1", 0) as server,
        relayed(server.sockets[0].getsockname()) as address,
    ):
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.readline() == b"hello\n"
        much = b"x" * 3_000_000
        writer.write(much)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 30) == much
        writer.close()


async def test_a_client_that_leaves_is_not_waited_for() -> None:
    left = asyncio.Event()

    async def stream(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        left.set()

    async with (
        await asyncio.start_server(stream, "127.0.0.1", 0) as server,
        relayed(server.sockets[0].getsockname()) as address,
    ):
        reader, writer = await asyncio.open_connection(*address)
        await reader.readexactly(100_000)
        writer.transport.abort()
        await asyncio.wait_for(left.wait(), 30)


async def refusing() -> publish.Address:
    """An address without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        return gone.getsockname()


@pytest.mark.parametrize("installed", [False, True])
async def test_without_a_gateway_the_client_is_told(installed: bool) -> None:
    async with relayed(await refusing() if installed else None) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = (await asyncio.wait_for(reader.read(), 30)).decode()
        assert answer.startswith("HTTP/1.1 503 ")
        assert publish.ABSENT in answer
        writer.close()


async def test_a_taken_port_gives_way_to_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((publish.HOST, 0)) as other_server:
        port = other_server.getsockname()[1]
        monkeypatch.setattr(publish, "PORT", port)
        with publish.listening() as other:
            host, number = other.getsockname()
            assert (host, number != port) == (publish.HOST, True)
    with publish.listening() as first:
        assert first.getsockname()[1] == port
