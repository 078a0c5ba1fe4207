"""Headers and URLs without an end: refused before they are kept, whatever the client goes on to send."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.raw_http import GET, POST, Gateway, answer_of, gateway, send_what_is_taken

MIB = 2**20
START = b"GET /health HTTP/1.1\r\nHost: x\r\n"
LINES = b"".join(b"X-%d: %s\r\n" % (each, b"a" * 8000) for each in range(32))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        pytest.param(START, LINES, id="many headers"),
        pytest.param(START + b"X: ", b"a" * 262_144, id="one header"),
        pytest.param(START, b"a" * 262_144, id="one header's name"),
        pytest.param(b"GET /", b"a" * 262_144, id="URL"),
        pytest.param(b"", b"\r\n" * 131_072, id="empty lines"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a" * 262_144, id="trailer"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", LINES, id="many trailers"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a" * 262_144, id="chunk's extension"),
    ],
)
def test_memory_does_not_follow_a_flood_of_headers(server: Gateway, start: bytes, piece: bytes) -> None:
    before = server.rss()
    with server.connected(6) as clients:
        for client in clients:
            client.sendall(start)
            send_what_is_taken(client, piece, 8 * MIB, seconds=1)
        assert server.answers(), "others are answered meanwhile"
        assert server.rss() - before < 24 * MIB
    assert server.log.stat().st_size < 10_000


@pytest.mark.parametrize(
    ("request_bytes", "status", "kind"),
    [
        (b"GET /health?" + b"a" * 8200 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, b"URITooLongError"),
        (START + b"X: " + b"a" * 33_000 + b"\r\n\r\n", 431, b"RequestHeaderFieldsTooLargeError"),
        (START + b"X: y\r\n" * 101 + b"\r\n", 431, b"RequestHeaderFieldsTooLargeError"),
        (b"nonsense\r\n\r\n", 400, b"BadRequestError"),
    ],
)
def test_the_client_is_told_why(server: Gateway, request_bytes: bytes, status: int, kind: bytes) -> None:
    with server.connect() as client:
        client.sendall(request_bytes)
        answered_status, answer = answer_of(client)
    assert answered_status == status
    assert kind in answer
    assert b"connection: close" in answer


def test_headers_below_the_limits_pass_however_they_are_cut(server: Gateway) -> None:
    request = START + b"".join(b"X-%d: %s\r\n" % (each, b"a" * 330) for each in range(90)) + b"\r\n"
    with server.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        for _ in range(3):
            for begin in range(0, len(request), 1013):
                client.sendall(request[begin : begin + 1013])
            assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_requests_sent_ahead_are_few(server: Gateway) -> None:
    before = server.rss()
    with server.connected(4) as clients:
        for client in clients:
            send_what_is_taken(client, (GET % b"/health") * 5000, 4 * MIB, seconds=1)
        assert server.rss() - before < 24 * MIB
    assert server.answers()


def test_a_few_requests_sent_ahead_are_answered_in_order(server: Gateway) -> None:
    with server.connect() as client:
        client.sendall(GET % b"/health" + GET % b"/nowhere" + GET % b"/health")
        client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        _, answers = answer_of(client)
    statuses = re.findall(rb"HTTP/1.1 (\d+)", answers)
    assert statuses == [b"200", b"404", b"200", b"200"]


def test_the_limits_are_settings(tmp_path: Path) -> None:
    with gateway(tmp_path, "--max-headers=10", "--max-url-bytes=256") as server:
        with server.connect() as client:
            client.sendall(START + b"X: y\r\n" * 10 + b"\r\n")
            assert answer_of(client)[0] == 431
        with server.connect() as client:
            client.sendall(GET % (b"/" + b"a" * 300))
            assert answer_of(client)[0] == 414
