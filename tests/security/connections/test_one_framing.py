"""What the application gets of a request: its body is its own, whatever protocol it offers and wherever it is cut."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.listeners import open_listener
from paternoster_http.protocol import MAX_PIPELINED
from paternoster_http.server import BackgroundServer

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def report_request(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a line of JSON with what it got, without its length."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    got = {"method": scope["method"], "path": scope["path"], "headers": headers, "body": body.decode()}
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(got).encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b"\n"})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listener, server = open_listener("127.0.0.1", 0), BackgroundServer(report_request, HttpLimits())
    await server.start(listener)
    yield listener.getsockname()[1]
    await server.close()


async def exchange(port: int, *pieces: bytes) -> bytes:
    """All that comes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.002 if len(pieces) > 1 else 0)
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


def requests_in(answer: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.splitlines() if line.startswith(b"{")]


FRAMED = {
    "length": b"Content-Length: %d\r\n\r\n%b" % (len(HIDDEN), HIDDEN),
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN),
}


@pytest.mark.parametrize("framing", FRAMED)
async def test_the_body_of_an_upgrade_is_its_body_wherever_it_is_cut(port: int, framing: str) -> None:
    sent = b"POST /first HTTP/1.1\r\nHost: x\r\n" + H2C + FRAMED[framing] + LAST
    answers = await asyncio.gather(*(exchange(port, sent[:cut], sent[cut:]) for cut in range(1, len(sent))))
    for answer in answers:
        first, last = requests_in(answer)
        assert (first["method"], first["path"], first["body"]) == ("POST", "/first", HIDDEN.decode())
        assert first["headers"]["http2-settings"] == "AAMAAABk"
        assert "upgrade" not in first["headers"]
        assert (last["path"], last["body"]) == ("/last", "")


async def test_upgrades_count_as_requests_sent_ahead(port: int) -> None:
    upgrade = b"GET /first HTTP/1.1\r\nHost: x\r\n" + H2C + b"\r\n"
    assert len(requests_in(await exchange(port, upgrade * MAX_PIPELINED + LAST))) == MAX_PIPELINED + 1
    with pytest.raises(ConnectionResetError):  # a refusal would stand in the place of an answer
        await exchange(port, upgrade * 2000 + LAST)


async def test_trailers_are_no_headers(port: int) -> None:
    head = b"POST /first HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    (request,) = requests_in(await exchange(port, head + b"Authorization: Bearer late\r\nX-Request-Id: late\r\n\r\n"))
    assert request["body"] == "x"
    assert request["headers"].keys() == {"host", "connection", "transfer-encoding"}


async def test_http_1_0_gets_no_chunks_and_no_interim_answer(port: int) -> None:
    answer = await exchange(port, b"POST /first HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx" + LAST)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\nconnection: close")
    assert b"transfer-encoding" not in head
    assert json.loads(body)["body"] == "x"


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/completions", "UnsupportedMediaTypeError"), ("/v1/messages", "invalid_request_error")]
)
@pytest.mark.parametrize("length", [10, 2**20])
async def test_a_compressed_body_is_refused_in_the_form_of_the_api(
    port: int, path: str, kind: str, length: int
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
    answer = await exchange(port, head.encode() + bytes(length) + LAST)
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 415 ")
    assert "accept-encoding: identity" in head
    error = json.loads(body)["error"]
    assert error["type"] == kind
    assert "Content-Encoding is 'gzip'" in error["message"]
