"""Raw bytes to a gateway: an engine sees a request for each that a client has sent, and none of an admin path."""

import re
import socket
import socketserver
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.security.behind_gateway import Process, gateway

from paternoster_gateway.app import FORWARDED

CORPUS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("raw_requests.toml").read_text())
BODY = b'{"model":"m"}'
WELL = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 13\r\n\r\n" + BODY
QUIET_SECONDS = 0.5
"""Without another byte of an answer: then there will be none. What comes later is seen with the next request."""


class Recorder(socketserver.ThreadingTCPServer):
    """An engine that writes down every byte; it believes ``Content-Length`` alone, as the least careful would."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.heads: list[bytes] = []


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Recorder)
        while head := self._head():
            if not head.startswith((b"GET /health ", b"GET /text-chains ")):
                self.server.heads.append(head)
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            self.rfile.read(int(length[1]) if length else 0)
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    def _head(self) -> bytes:
        head = b""
        while line := self.rfile.readline():
            head += line
            if line in (b"\r\n", b"\n"):
                return head
        return head


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def front(recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with gateway(tmp_path_factory.mktemp("gateway"), [f"http://127.0.0.1:{recorder.server_address[1]}"]) as process:
        yield process


def exchange(port: int, sent: bytes) -> bytes:
    """All that comes back until it is quiet, or the connection ends."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        try:
            client.sendall(sent)
            client.settimeout(QUIET_SECONDS)
            while part := client.recv(65536):
                answer += part
        except (TimeoutError, ConnectionError):
            pass
    return answer


def check(head: bytes) -> None:
    """Check a request as the engine gets it."""
    line, *headers = head.split(b"\r\n")
    method, target, version = line.split(b" ")
    assert (method, version) == (b"POST", b"HTTP/1.1")
    assert target.decode() in FORWARDED
    names = [header.partition(b":")[0].lower() for header in headers if header]
    assert len(names) == len(set(names)), "each once"
    assert not {b"transfer-encoding", b"authorization", b"upgrade", b"x-injected"} & set(names)
    assert not re.search(rb"[\x00\r\n]", b"".join(headers))


@pytest.mark.parametrize("name", CORPUS)
def test_no_request_hides_in_another(front: Process, recorder: Recorder, name: str) -> None:
    entry = CORPUS[name]
    text = entry["send"]
    if "repeat" in entry:
        text = text.replace("@", entry["fill"] * entry["repeat"])
    recorder.heads.clear()
    answer = exchange(front.port, text.encode("latin-1"))
    seen = list(recorder.heads)
    assert len(seen) <= entry.get("requests", 1)
    for head in seen:
        check(head)
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]
    assert {500, 502, 503, 504}.isdisjoint(statuses), answer
    recorder.heads.clear()
    assert exchange(front.port, WELL).startswith(b"HTTP/1.1 200"), "others are served as before"
    assert len(recorder.heads) == 1


def test_the_recorder_sees_what_it_is_sent(recorder: Recorder) -> None:
    """Or the tests above could not fail."""
    recorder.heads.clear()
    port = int(recorder.server_address[1])
    exchange(port, b"POST /v1/completions HTTP/1.1\r\nContent-Length: 0\r\n\r\nPOST /admin/drain HTTP/1.1\r\n\r\n")
    assert len(recorder.heads) == 2
    with pytest.raises(AssertionError):
        check(recorder.heads[1])
