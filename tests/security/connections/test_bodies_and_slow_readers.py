"""Bodies without an end are not taken, and answers that no client reads are dropped."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from tests.security.raw_http import POST, Gateway, answer_of, closed, gateway, send_what_is_taken, status_of

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.server import LimitedServer

MIB = 2**20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with the limits as they are."""
    with gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def test_a_content_length_beyond_the_limit_is_refused_at_once(server: Gateway) -> None:
    with server.connect() as client:
        before = server.rss()
        client.sendall(POST + b"Content-Length: 400000000\r\n\r\n")
        status, answer = answer_of(client)
        assert status == 413
        assert b"RequestTooLargeError" in answer
        assert server.rss() - before < 16 * MIB


@pytest.mark.parametrize("length", [b"9" * 19, b"9" * 5000, b"-1", b"1e3", b"1, 1"])
def test_a_content_length_that_is_none_is_refused(server: Gateway, length: bytes) -> None:
    with server.connect() as client:
        client.sendall(POST + b"Content-Length: " + length + b"\r\n\r\n")
        assert answer_of(client)[0] in (400, 413)
    assert server.answers()


def test_a_chunked_body_is_refused_where_it_passes_the_limit(tmp_path: Path) -> None:
    with gateway(tmp_path, f"--max-body-bytes={4 * MIB}") as server, server.connect() as client:
        before = server.rss()
        client.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        send_what_is_taken(client, b"10000\r\n" + b"a" * 65536 + b"\r\n", 200 * MIB, seconds=5)
        assert server.rss() - before < 40 * MIB
        assert server.answers()
    assert b"Traceback" not in server.log.read_bytes()


def test_the_client_that_sends_too_much_hears_of_it(server: Gateway) -> None:
    """Also while its body is still on its way: the connection is not torn down under the answer."""
    with server.connect() as client:
        client.sendall(POST + b"Content-Length: 30000000\r\n\r\n")
        send_what_is_taken(client, b"a" * 65536, 5 * MIB, seconds=1)
        client.settimeout(10)
        assert status_of(client) == 413


def test_many_bodies_that_never_end_cost_no_more_than_all_may(tmp_path: Path) -> None:
    part = b'{"model": "m", "prompt": "' + b"a" * (4 * MIB - 1000)
    with gateway(tmp_path, f"--max-held-body-bytes={16 * MIB}") as server:
        before = server.rss()
        with server.connected(40) as clients:
            for client in clients:
                client.sendall(POST + b"Content-Length: %d\r\n\r\n" % (4 * MIB))
                send_what_is_taken(client, part, len(part), seconds=2)
            assert server.rss() - before < 80 * MIB
            with server.connect() as client:
                client.sendall(POST + b"Content-Length: %d\r\n\r\n" % (len(part) + 2) + part + b'"}')
                assert status_of(client) == 404  # read to its end: there is no such model
    assert b"Traceback" not in server.log.read_bytes()


def test_a_body_within_the_limit_is_read_whole(server: Gateway) -> None:
    body = b'{"model": "m", "prompt": "%s"}' % (b"a" * 4_000_000)
    with server.connect() as client:
        client.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert status_of(client) == 404, "the model is unknown"


class Endless:
    """An application whose answer never ends; it says when it was cancelled."""

    def __init__(self, pause: float = 0) -> None:
        self.pause = pause
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self._write(send))
        while (await receive())["type"] != "http.disconnect":
            pass
        writing.cancel()
        self.ended.set()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"a" * 65536, "more_body": True})
            await asyncio.sleep(self.pause)


@asynccontextmanager
async def serving(app: Callable[[Scope, Receive, Send], Awaitable[None]], limits: HttpLimits) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = LimitedServer(app, limits, lifespan="off", timeout_graceful_shutdown=1)
    running = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    await running


async def test_who_does_not_read_is_cut_off_and_the_work_for_it_ends() -> None:
    app = Endless()
    async with serving(app, HttpLimits(write_timeout=1)) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(20):
                await app.ended.wait()
            assert await asyncio.to_thread(closed, client, 10)


async def test_who_reads_slowly_goes_on() -> None:
    app = Endless()
    async with serving(app, HttpLimits(write_timeout=1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(20):
            await reader.readexactly(MIB)
            await asyncio.sleep(0.25)
        assert not app.ended.is_set()
        writer.close()


async def test_an_answer_may_pause_for_as_long_as_it_likes() -> None:
    app = Endless(pause=4)
    limits = HttpLimits(write_timeout=1, header_timeout=1, body_timeout=1, keep_alive_timeout=1)
    async with serving(app, limits) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readexactly(65536)
        await reader.readexactly(65536)
        assert not app.ended.is_set()
        writer.close()


async def test_where_all_places_work_probes_are_answered_still() -> None:
    limits = HttpLimits(max_connections=16)
    release = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/health":
            await release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def get_answer(port: int, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        status = (await reader.readline()).split()[1]
        writer.close()
        return status

    async with serving(app, limits) as port, asyncio.timeout(30):
        working = [asyncio.create_task(get_answer(port, "/slow")) for _ in range(40)]
        await asyncio.sleep(1)
        for _ in range(5):
            assert await get_answer(port, "/health") == b"200"
        release.set()
        statuses = await asyncio.gather(*working)
        assert statuses.count(b"200") == 15
        assert statuses.count(b"503") == 25
