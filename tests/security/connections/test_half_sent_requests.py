"""Connections that send nothing, or half of something, and then wait: they end, and keep no client out meanwhile."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest
import trustme
from tests.security.raw_http import GET, POST, Gateway, closed, gateway, status_of, until

SOON = 15
"""Seconds; the limits below are 1."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway in a hurry, with TLS as well."""
    folder = tmp_path_factory.mktemp("gateway")
    issued = trustme.CA().issue_cert("127.0.0.1")
    chain, key = folder / "tls.crt", folder / "tls.key"
    chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    flags = ["--header-timeout=1", "--body-timeout=1", "--keep-alive-timeout=1"]
    with gateway(folder, *flags, f"--tls-cert={chain}", f"--tls-key={key}", "--tls-port=0") as running:
        yield running


HALF_SENT = [
    (b"", b""),
    (b"GET /health HT", b"HTTP/1.1 408"),
    (b"GET /health HTTP/1.1\r\nHost: x\r\nX:", b"HTTP/1.1 408"),
    (POST + b"Content-Length: 1000\r\n\r\n{", b"HTTP/1.1 408"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", b"HTTP/1.1 408"),
    (GET % b"/health", b"HTTP/1.1 200"),
]


@pytest.fixture(scope="module")
def half_sent(server: Gateway) -> Iterator[dict[tuple[bytes, bool], socket.socket]]:
    """Clients by what they have sent and whether over TLS; all wait at the same time."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as stack:
        clients: dict[tuple[bytes, bool], socket.socket] = {}
        for over_tls, (sent, _) in product((False, True), HALF_SENT):
            client = stack.enter_context(server.connect(server.tls_port if over_tls else None))
            if over_tls:
                client = stack.enter_context(context.wrap_socket(client))
            client.sendall(sent)
            client.settimeout(SOON)
            clients[sent, over_tls] = client
        yield clients


@pytest.mark.parametrize(("sent", "answer"), HALF_SENT)
@pytest.mark.parametrize("over_tls", [False, True])
def test_who_says_no_more_is_let_go(
    half_sent: dict[tuple[bytes, bool], socket.socket], sent: bytes, answer: bytes, over_tls: bool
) -> None:
    client, received = half_sent[sent, over_tls], b""
    while data := client.recv(65536):
        received += data
    # The plain port of a gateway with TLS answers no prompt, but its body is awaited as any other.
    if sent.startswith(b"POST") and not over_tls:
        answer = b"HTTP/1.1 403"
    assert received.startswith(answer)


def test_a_tls_handshake_that_stops_is_let_go(server: Gateway) -> None:
    with server.connect(server.tls_port) as client:
        client.sendall(b"\x16\x03\x01")
        assert closed(client, SOON)


def test_single_bytes_do_not_keep_a_request_open(server: Gateway) -> None:
    with server.connect() as client:
        began = time.monotonic()
        client.sendall(b"GET /health HTTP/1.1\r\nX: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() - began < SOON:
                client.sendall(b"a")
                time.sleep(0.2)


def test_thousands_of_half_open_connections_end(tmp_path: Path) -> None:
    with gateway(tmp_path, "--header-timeout=2") as server:
        before = server.descriptors()
        with server.connected(1500) as clients:
            for client in clients[:750]:
                client.sendall(b"GET /health HT")
            assert server.answers(), "while they stand"
            until(lambda: server.descriptors() < before + 10)
            assert status_of(clients[0]) == 408


def test_at_the_limit_who_waits_gives_way(tmp_path: Path) -> None:
    """Half-sent requests take every place, and a probe still gets in."""
    with gateway(tmp_path, "--max-connections=64") as server, server.connected(200) as clients:
        for client in clients[::2]:
            try:
                client.sendall(POST + b"Content-Length: 1000\r\n\r\n{")
            except OSError:
                continue  # has given way already
        for _ in range(20):
            assert server.status() == 200
            assert server.status(b"/ready") == 200
        assert server.descriptors() < 100


def test_one_address_has_its_share(tmp_path: Path) -> None:
    with gateway(tmp_path, "--max-connections-per-address=8") as server, ExitStack() as stack:
        time.sleep(1)  # those that asked whether it is ready are gone
        clients = [stack.enter_context(server.connect()) for _ in range(8)]
        for client in clients:
            client.sendall(GET % b"/health")
            assert status_of(client) == 200
        with server.connect() as ninth:
            assert closed(ninth, SOON)
        with server.connect(source="127.0.0.2") as neighbour:
            neighbour.sendall(GET % b"/health")
            assert status_of(neighbour) == 200
        clients[0].close()
        until(server.answers)


def test_at_the_limit_of_descriptors_neither_log_nor_processor_run_away(tmp_path: Path) -> None:
    # What a request needs beside its connection comes out of the same descriptors: here other sockets take them all.
    with gateway(tmp_path, "--max-connections=4096", "--header-timeout=3600", nofile=128) as server:
        with server.connected(400):
            time.sleep(1)
            log, cpu = server.log.stat().st_size, server.cpu_seconds()
            time.sleep(5)
            assert server.log.stat().st_size - log < 5000
            assert server.cpu_seconds() - cpu < 2.5
        until(server.answers)


def test_a_body_that_comes_slowly_but_steadily_is_waited_for(server: Gateway) -> None:
    body = b" " * 1_000_000
    with server.connect() as client:
        client.sendall(POST.replace(b"/v1/completions", b"/tokenize") + b"Content-Length: %d\r\n\r\n" % len(body))
        for begin in range(0, len(body), 100_000):
            client.sendall(body[begin : begin + 100_000])
            time.sleep(0.3)
        assert status_of(client) == 403
