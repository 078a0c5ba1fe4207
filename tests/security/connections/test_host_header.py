"""A Host header is a name that the client sends: no path is made of it, and nothing is routed by it."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.security.raw_http import COMPLETION, Gateway, gateway, status_of

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable

HOSTS = (
    b"x/admin/drain?",
    b"x/admin/drain#",
    b"x/admin/config?a=",
    b"x@y/admin/drain?",
    b"x:80/admin/drain?",
    b"/admin/drain?",
    b"x\t/admin/drain?",
)
TARGETS = (b"/v1/completions", b"/tokenize", b"http://x/v1/completions", b"http://y/admin/drain?/v1/completions")


@pytest.fixture
def engine() -> Iterator[tuple[int, list[bytes]]]:
    """A port that answers every request, and the request lines that it saw."""
    seen: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                data = b""
                while COMPLETION not in data and not data.startswith(b"GET ") and (more := connection.recv(65536)):
                    data += more
                seen.append(data.split(b"\r\n", 1)[0])
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], seen
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def post(server: Gateway, target: bytes, host: bytes) -> int:
    with server.connect() as client:
        head = b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n" % (target, host)
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(COMPLETION) + COMPLETION)
        return status_of(client)


def test_no_path_but_those_of_the_api_reaches_an_engine(tmp_path: Path, engine: tuple[int, list[bytes]]) -> None:
    port, seen = engine
    replica = Replica(name="one", url=f"http://127.0.0.1:{port}", ready=True)
    with gateway(tmp_path, table=RoutingTable(models={"m": ModelRoute(replicas=[replica])})) as server:
        statuses = {(target, host): post(server, target, host) for target in TARGETS for host in HOSTS}
        # as do paths that only look like one of them
        for target in (b"/tokenize%0A", b"/tokenize%0a", b"/v1/../admin/drain", b"//admin/drain", b"/admin/drain"):
            assert post(server, target, b"x") in (404, 400), target
    assert 200 in statuses.values(), "the name in Host does not matter"
    of_gateway = {b"GET /text-chains HTTP/1.1", b"GET /health HTTP/1.1"}
    assert set(seen) - of_gateway == {b"POST /v1/completions HTTP/1.1", b"POST /tokenize HTTP/1.1"}
    foreign = {status for (target, _), status in statuses.items() if target.startswith(b"http://y/")}
    assert foreign <= {400, 404}
