"""An engine that somebody took over: what it may say to the gateway's clients, and what it cannot leave behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tests.gateway.fakes import Door, answer, stats, until

from paternoster_e2e.fakes.engine import Behave, FakeEngine

Start = Callable[[str, Behave], Awaitable[FakeEngine]]
BODY = {"model": "m", "prompt": "up"}


@asynccontextmanager
async def answering(head: bytes, body: bytes = b"{}") -> AsyncIterator[FakeEngine]:
    """An engine that answers every POST with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        while (await reader.readline()).strip():
            pass
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: 0" if line.startswith(b"GET") else head
        rest = b"" if line.startswith(b"GET") else body
        writer.write(whole + b"\r\nConnection: close\r\n\r\n" + rest)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield FakeEngine("hostile", answer, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def post(client: aiohttp.ClientSession, door: Door) -> tuple[int, dict[str, str], bytes]:
    async with client.post(f"{door.url}/v1/completions", json=BODY, allow_redirects=False) as response:
        return response.status, {name.lower(): value for name, value in response.headers.items()}, await response.read()


async def none_in_flight(client: aiohttp.ClientSession, door: Door) -> None:
    seen = await until(lambda: stats(client, door), lambda models: models["m"]["in_flight"] == 0)
    assert seen["m"]["in_flight"] == 0


@pytest.mark.parametrize("status", [b"999 No", b"307 Temporary Redirect", b"101 Switching Protocols", b"204 No Content",
                                    b"304 Not Modified", b"600 No"])  # fmt: skip
async def test_a_status_that_no_engine_has_is_502_or_answered_by_another_replica(
    client: aiohttp.ClientSession, door: Door, start: Start, status: bytes
) -> None:
    head = b"HTTP/1.1 " + status + b"\r\nLocation: http://evil.example/\r\nContent-Type: application/json"
    async with answering(head, b"") as hostile:
        door.publish(hostile)
        await until(lambda: stats(client, door), lambda models: "m" in models)
        for _ in range(3):
            code, headers, body = await post(client, door)
            assert code == 502 or (code == 503 and status.startswith(b"101"))
            assert "location" not in headers
            assert b"evil" not in body
        await none_in_flight(client, door)
        door.publish(hostile, await start("b", answer))
        await until(lambda: post(client, door), lambda seen: seen[0] == 200)
        for _ in range(4):
            assert (await post(client, door))[0] == 200


async def test_headers_of_an_answer_that_no_engine_sends_are_removed(client: aiohttp.ClientSession, door: Door) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nX-Paternoster-Ignored: seed\r\n"
        b"X-RateLimit-Remaining-Requests: 7\r\nOpenAI-Processing-Ms: 12\r\nRetry-After: 3\r\n"
        b"Set-Cookie: session=1\r\nStrict-Transport-Security: max-age=99\r\nClear-Site-Data: \"*\"\r\n"
        b"Access-Control-Allow-Origin: *\r\nLocation: http://evil.example/\r\nX-Accel-Redirect: /etc/passwd\r\n"
        b"X-Sendfile: /etc/passwd\r\nRefresh: 0; url=http://evil.example/\r\nLink: <http://evil.example/>\r\n"
        b"WWW-Authenticate: Basic\r\nAlt-Svc: h2=\"evil.example\"\r\nContent-Security-Policy: x\r\nAge: 1\r\n"
        b"X-Paternoster-Tool-Template: \xe2\x98\xa0\xff\r\nServer-Timing: a"
    )  # fmt: skip
    async with answering(head) as hostile:
        door.publish(hostile)
        await until(lambda: stats(client, door), lambda models: "m" in models)
        code, headers, body = await post(client, door)
        assert (code, body) == (200, b"{}")
        headers.pop("transfer-encoding", None)
        headers.pop("content-length", None)
        assert headers.pop("date")
        assert headers.pop("x-request-id")
        headers.pop("connection", None)
        headers.pop("server", None)
        assert headers == {
            "content-type": "application/json", "x-paternoster-ignored": "seed", "openai-processing-ms": "12",
            "x-ratelimit-remaining-requests": "7", "retry-after": "3", "x-content-type-options": "nosniff",
        }  # fmt: skip
        await none_in_flight(client, door)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b"text/html; charset=utf-8", "application/octet-stream"),
        (b"image/svg+xml", "application/octet-stream"),
        (b"multipart/x-mixed-replace; boundary=x", "application/octet-stream"),
        (b"", "application/octet-stream"),
        (b"Application/JSON; charset=utf-8", "application/json; charset=utf-8"),
        (b"text/event-stream; charset=utf-8", "text/event-stream; charset=utf-8"),
        (b"text/plain; charset=utf-8", "text/plain; charset=utf-8"),
        (b"application/problem+json", "application/problem+json"),
    ],
)
async def test_a_page_of_an_engine_gets_a_media_type_that_browsers_do_not_render(
    client: aiohttp.ClientSession, door: Door, given: bytes, sent: str
) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: " + given) as hostile:
        door.publish(hostile)
        await until(lambda: stats(client, door), lambda models: "m" in models)
        code, headers, _ = await post(client, door)
        assert code == 200
        assert headers["content-type"].lower() == sent
        assert headers["x-content-type-options"] == "nosniff"
