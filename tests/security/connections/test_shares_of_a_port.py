"""What a port has is shared out: a client that takes all it can get leaves the others their part, at once."""

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.access.identity import HEADER, Identity
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.access.shares_of_tenants import SharesOfTenants
from paternoster_http.server import LimitedServer

KIB = 1024
NOISY, QUIET = "127.0.0.1", "127.0.0.2"
LIMITS = HttpLimits(max_connections=64, max_body_bytes=64 * KIB, max_held_body_bytes=1024 * KIB)
"""60 places for requests, and 16 bodies of the largest size."""


@dataclass
class App:
    """Reads each body; then answers at once, or at ``/held`` when released, or at ``/endless`` for ever."""

    released: asyncio.Event = field(default_factory=asyncio.Event)
    whole: int = 0
    """Bodies that were read to their end."""
    left: int = 0
    """Requests at ``/held`` whose client left or was refused."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        self.whole += message["type"] == "http.request"
        if scope["path"] == "/held":
            await self._hold(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while scope["path"] == "/endless":
            await send({"type": "http.response.body", "body": bytes(64 * KIB), "more_body": True})
            await asyncio.sleep(0)
        if scope["path"] == "/streamed":
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            await self.released.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async def _hold(self, receive: Receive) -> None:
        gone, released = asyncio.ensure_future(receive()), asyncio.ensure_future(self.released.wait())
        await asyncio.wait({gone, released}, return_when=asyncio.FIRST_COMPLETED)
        self.left += gone.done()
        gone.cancel()
        released.cancel()


@dataclass
class Port:
    app: App
    number: int
    stack: AsyncExitStack
    headers: str = ""
    """Further ones of each request, with their ends of lines."""

    async def connect(self, address: str) -> tuple[StreamReader, StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number, local_addr=(address, 0), limit=4096)
        self.stack.callback(writer.close)
        return reader, writer

    async def post(self, address: str, path: str, size: int = 0, sent: int | None = None) -> StreamReader:
        """Send a request with a body of ``size`` bytes, or the first ``sent`` of them."""
        return (await self._send(address, path, size, sent))[0]

    async def status(self, address: str, path: str = "/now", size: int = 0) -> int:
        """Status of a request on a connection that ends with its answer."""
        reader, writer = await self._send(address, path, size)
        try:
            return await status_of(reader)
        finally:
            writer.close()

    async def _send(
        self, address: str, path: str, size: int, sent: int | None = None
    ) -> tuple[StreamReader, StreamWriter]:
        reader, writer = await self.connect(address)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n{self.headers}\r\n".encode())
        writer.write(bytes(size if sent is None else sent))
        return reader, writer


async def status_of(reader: StreamReader) -> int:
    """0 where the connection ends without an answer."""
    try:
        return int((await reader.readline()).split()[1])
    except (IndexError, ConnectionError):
        return 0


async def answer_of(reader: StreamReader) -> str:
    return (await reader.read(4096)).decode()


@asynccontextmanager
async def serving(wrapped: Callable[[App], ASGIApp] = lambda app: app) -> AsyncIterator[Port]:
    listener, app = socket.create_server(("127.0.0.1", 0), backlog=256), App()
    server = LimitedServer(wrapped(app), LIMITS, lifespan="off", timeout_graceful_shutdown=1)
    running = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        yield Port(app, listener.getsockname()[1], stack)
    app.released.set()
    server.should_exit = True
    await running


async def settle() -> None:
    """Let what was sent arrive."""
    await asyncio.sleep(0.3)


async def served_beside(port: Port, size: int) -> None:
    """The quiet client's requests are all answered: one after another, and some at once."""
    assert [await port.status(QUIET, size=size) for _ in range(5)] == [200] * 5
    assert await asyncio.gather(*(port.status(QUIET, size=size) for _ in range(4))) == [200] * 4


@pytest.mark.parametrize("sent", [64 * KIB, 64 * KIB - 1], ids=["whole", "but for a byte"])
async def test_bodies_that_one_client_holds_open_leave_room_for_another(sent: int) -> None:
    async with serving() as port:
        for _ in range(33):
            await port.post(NOISY, "/held", 64 * KIB, sent)
        await settle()
        await served_beside(port, 64 * KIB)


async def test_a_client_alone_may_hold_almost_all_bytes_and_hears_what_is_full() -> None:
    async with serving() as port:
        readers = [await port.post(NOISY, "/held", 64 * KIB) for _ in range(20)]
        await settle()
        assert port.app.whole == 14
        refused = await answer_of(readers[-1])
        assert "503" in refused.splitlines()[0]
        assert "retry-after: 1" in refused
        assert "bytes" in refused
        port.app.released.set()
        assert sorted([await status_of(reader) for reader in readers[:-1]]) == [200] * 14 + [503] * 5
        await served_beside(port, 64 * KIB)


@pytest.mark.parametrize("sent", [0, 1], ids=["working", "sending"])
async def test_requests_of_one_client_leave_places_for_another(sent: int) -> None:
    async with serving() as port:
        for _ in range(63):
            await port.post(NOISY, "/held", 2 * sent, sent)
        await settle()
        await served_beside(port, 10)


async def test_a_client_alone_has_almost_all_places_and_hears_what_is_full() -> None:
    async with serving() as port:
        readers = [await port.post(NOISY, "/held") for _ in range(60)]
        await settle()
        refused = await answer_of(readers[-1])
        assert "503" in refused.splitlines()[0]
        assert "retry-after: 1" in refused
        assert "too many requests in progress" in refused
        port.app.released.set()
        assert sorted([await status_of(reader) for reader in readers[:-1]]) == [200] * 54 + [503] * 5
        assert [await port.status(NOISY) for _ in range(60)] == [200] * 60, "places are given back"


async def test_who_has_fewer_gets_as_many_and_the_latest_without_an_answer_give_way() -> None:
    async with serving() as port:
        first = [await port.post(NOISY, "/streamed") for _ in range(10)]
        await settle()
        noisy = [asyncio.create_task(port.status(NOISY, "/held")) for _ in range(43)]
        await settle()
        last = await port.post(NOISY, "/held")
        await settle()
        quiet = [asyncio.create_task(port.status(QUIET, "/held")) for _ in range(36)]
        gave_way = await answer_of(last)
        assert "503" in gave_way.splitlines()[0]
        assert "retry-after: 1" in gave_way
        while sum(task.done() for task in quiet) < 9:
            await asyncio.sleep(0.1)
        await settle()
        assert sum(task.done() for task in quiet) == 9
        assert sum(task.done() for task in noisy) == 26, "10 of its answers have begun, and 17 wait"
        assert port.app.left == 27
        port.app.released.set()
        assert [await status_of(reader) for reader in first] == [200] * 10
        assert sorted(await asyncio.gather(*quiet)) == [200] * 27 + [503] * 9
        assert await asyncio.gather(*noisy) == [200] * 17 + [503] * 26


async def test_answers_that_one_client_does_not_read_leave_places_for_another() -> None:
    async with serving() as port:
        for _ in range(63):
            await port.post(NOISY, "/endless")
        await asyncio.sleep(2.5)  # until they are seen to be blocked
        quiet = [await port.post(QUIET, "/held") for _ in range(20)]
        await settle()
        port.app.released.set()
        assert [await status_of(reader) for reader in quiet] == [200] * 20
        await served_beside(port, 64 * KIB)


async def test_connections_of_one_client_that_wait_give_way_before_those_of_another() -> None:
    async with serving() as port:
        reader, writer = await port.connect(QUIET)
        writer.write(b"GET /now HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await status_of(reader) == 200
        await settle()
        for _ in range(70):
            await port.connect(NOISY)
        await asyncio.sleep(2)
        assert await port.status(NOISY) == 200
        writer.write(b"GET /now HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await answer_of(reader), "it was kept alive"
        assert not reader.at_eof()


def identity(tenant: str) -> str:
    return f"{HEADER}: {Identity(tenant=tenant).encode()}\r\n"


@pytest.mark.parametrize("size", [0, 64 * KIB], ids=["places", "bytes"])
async def test_an_engine_shares_out_by_tenant_what_comes_through_one_gateway(size: int) -> None:
    def by_tenant(app: App) -> ASGIApp:
        return SharesOfTenants(app, TenantRules(believes_header=True))

    async with serving(by_tenant) as port:
        port.headers = identity("noisy")
        for _ in range(20 if size else 63):
            await port.post(QUIET, "/held", size)
        await settle()
        port.headers = identity("quiet")
        await served_beside(port, size)
        port.headers = f"{HEADER}: none\r\n"
        assert await port.status(QUIET) == 200, "the routes say what is wrong with it"
