"""Servers of ours in processes of their own, and clients that speak to them byte by byte."""

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from paternoster_contract.routing import RoutingTable

PATERNOSTER = Path(sys.executable).with_name("paternoster")
GET = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
COMPLETION = b'{"model": "m", "prompt": "x"}'


@dataclass
class Gateway:
    """One that runs; ``log`` is a file with all it writes."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    tls_port: int | None = None

    def rss(self) -> int:
        """Resident bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def descriptors(self) -> int:
        return int(psutil.Process(self.process.pid).num_fds())

    def connect(self, port: int | None = None, source: str = "") -> socket.socket:
        return socket.create_connection(
            ("127.0.0.1", port or self.port), timeout=20, source_address=(source, 0) if source else None
        )

    @contextmanager
    def connected(self, count: int) -> Iterator[list[socket.socket]]:
        with ExitStack() as stack:
            yield [stack.enter_context(self.connect()) for _ in range(count)]

    def status(self, path: bytes = b"/health") -> int:
        """The status of a well-behaved GET on a connection of its own; ``OSError`` where there is none."""
        with self.connect() as client:
            client.sendall(GET % path)
            return status_of(client)

    def answers(self, path: bytes = b"/health") -> bool:
        with suppress(OSError, ConnectionError):
            return self.status(path) == 200
        return False


@contextmanager
def gateway(
    folder: Path, *flags: str, nofile: int | None = None, table: RoutingTable | None = None
) -> Iterator[Gateway]:
    """``paternoster gateway`` with these flags, and with ``nofile`` descriptors at most."""
    routes, log = folder / "routes.json", folder / "gateway.log"
    routes.write_text((table or RoutingTable()).model_dump_json())
    command = [str(PATERNOSTER), "gateway", f"--routes={routes}", "--port=0", *flags]
    limited = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (nofile, nofile)) if nofile else None
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, preexec_fn=limited)
    try:
        assert process.stdout is not None
        ports = [_port(process.stdout.readline())]
        if any(flag.startswith("--tls-port") for flag in flags):
            ports.append(_port(process.stdout.readline()))
        made = Gateway(process, ports[0], log, *ports[1:])
        until(lambda: made.answers(b"/ready"))
        yield made
    finally:
        process.kill()
        process.wait()


def _port(line: bytes) -> int:
    assert line.startswith(b"listening on "), line
    return int(line.rpartition(b":")[2])


def status_of(client: socket.socket) -> int:
    """The status of the answer that comes next; ``ConnectionError`` where the server closes without one."""
    head = b""
    while b"\r\n" not in head:
        data = client.recv(65536)
        if not data:
            raise ConnectionError("closed without an answer")
        head += data
    return int(head.split()[1])


def answer_of(client: socket.socket) -> tuple[int, bytes]:
    """Status and all that comes until the server closes."""
    data = b""
    with suppress(ConnectionError):
        while more := client.recv(65536):
            data += more
    return int(data.split()[1]), data


def closed(client: socket.socket, seconds: float) -> bool:
    """Whether the server closes within so long, whatever it sends before."""
    deadline = time.monotonic() + seconds
    with suppress(ConnectionError):
        while (left := deadline - time.monotonic()) > 0:
            client.settimeout(left)
            try:
                if not client.recv(65536):
                    return True
            except TimeoutError:
                return False
        return False
    return True


def send_what_is_taken(client: socket.socket, piece: bytes, most: int, seconds: float = 10) -> int:
    """Bytes that left before ``most`` had, the server closed, or ``seconds`` had passed."""
    sent, deadline = 0, time.monotonic() + seconds
    client.settimeout(1)
    with suppress(OSError):
        while sent < most and time.monotonic() < deadline:
            sent += client.send(piece)
    return sent


def until(holds: Callable[[], object], seconds: float = 30) -> None:
    """Wait for it; a bound, not a measurement."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.05)
