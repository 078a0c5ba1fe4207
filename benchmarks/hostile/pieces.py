"""How long a gateway's /health waits while clients or engines send their bytes in the smallest pieces.

    python benchmarks hostile.pieces --seconds 10 --connections 4

Attackers are processes of their own and have no key; the engine that they are answered by is hostile too. Each line
has the median, the 99th percentile and the longest wait of a /health that is requested every 10 ms, and the gateway's
processor time by the second.
"""

import asyncio
import json
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import numpy as np

from harness.arguments import RunnerParser
from harness.fake_engine import read_requests, serve_connections
from harness.health import PERIOD_SECONDS, measure_wait
from harness.processes import cpu_seconds
from harness.servers import free_port, gateway_server, local_url, route_to, started
from paternoster_contract.access import keys

MODEL = "open"
PIECE = b"1\r\na\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = json.dumps({"model": MODEL, "prompt": "up"}).encode()
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


def send_chunks_of_a_byte(port: int) -> None:
    """Bodies in chunks of a byte, one after another."""
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(CHUNKED)
            for _ in range(1024):
                client.sendall(PIECE * 1024)


def send_segments_of_a_byte(port: int) -> None:
    """Bodies whose every byte leaves by itself."""
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(SIZED % 2**22)
            for _ in range(2**22):
                client.send(b"a")


def open_chat(port: int) -> None:
    """A call of the open model whose answer is read and dropped, over and over."""
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(SIZED % len(BODY) + BODY)
            while client.recv(2**20):
                pass


def be_engine(port: int, answer: bytes, piece: bytes) -> None:
    """Serve the answer ``answer`` followed by ``piece`` without an end; probes are answered."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for method, _, _ in read_requests(reader):
            if method == "GET":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                continue
            writer.write(answer)
            while True:
                writer.write(piece * 1024)
                await writer.drain()

    serve_connections(serve, port)


Attack = tuple[Callable[[int], None], bytes, bytes]
ATTACKS: dict[str, Attack] = {
    "bodies in chunks of a byte": (send_chunks_of_a_byte, HEAD, b""),
    "bodies in segments of a byte": (send_segments_of_a_byte, HEAD, b""),
    "answers in chunks of a byte": (open_chat, HEAD, PIECE),
    "answers in chunks of 32 bytes": (open_chat, HEAD, b"20\r\n" + b"a" * 32 + b"\r\n"),
    "answers of 64 KiB a chunk": (open_chat, HEAD, b"10000\r\n" + b"a" * 2**16 + b"\r\n"),
    "103s without an end": (open_chat, b"", INTERIM),
    "103s with long headers": (open_chat, b"", b"HTTP/1.1 103 Early Hints\r\nLink: " + b"a" * 100 + b"\r\n\r\n"),
}
"""The attacker, and the engine's answer with what it repeats."""


def waits(port: int, seconds: float) -> Iterator[float]:
    """Waits for /health, asked every :data:`PERIOD_SECONDS` on one connection, in seconds."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    end = time.monotonic() + seconds
    while (started := time.monotonic()) < end:
        try:
            yield measure_wait(connection)
        except (OSError, HTTPException):
            connection.close()
            yield time.monotonic() - started
        time.sleep(PERIOD_SECONDS)


def measure(name: str, attack: Attack | None, connections: int, seconds: float, *, keyed: bool) -> dict[str, object]:
    """One attack on a gateway of its own; without one, what it does alone."""
    context = multiprocessing.get_context("fork")
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        attacker, answer, piece = attack or (None, HEAD, b"")
        port = free_port()
        digests = [keys.digest_key("a" * 32)] if keyed else None
        route = route_to(local_url(port), key_digests=digests)
        server = gateway_server(Path(folder), {MODEL: route})
        processes.append(context.Process(target=be_engine, args=(port, answer, piece), daemon=True))
        with started([server]):
            if attacker is not None:
                processes += [
                    context.Process(target=attacker, args=(server.port,), daemon=True) for _ in range(connections)
                ]
            for process in processes:
                process.start()
            time.sleep(1)
            used, began = cpu_seconds(server.pid), time.monotonic()
            found = list(waits(server.port, seconds))
            cpu = (cpu_seconds(server.pid) - used) / (time.monotonic() - began)
            for process in processes:
                process.kill()
                process.join()
    p50, p99 = (float(np.percentile(found, percent)) * 1000 for percent in (50, 99))
    return {"name": name, "p50_ms": p50, "p99_ms": p99, "max_ms": max(found) * 1000, "cpu": cpu}


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--seconds", 10.0, "of each attack")
    parser.add_number("--connections", 4, "of attackers")
    parser.add_argument("--only", nargs="*", default=[], help="attacks with one of these words in their names")
    parser.add_argument("--keyed", action="store_true", help="the model needs a key, which attackers lack")
    args = parser.parse_args()
    attacks = [("alone", None), *ATTACKS.items()]
    for name, attack in attacks:
        if args.only and not any(word in name for word in args.only):
            continue
        row = measure(name, attack, args.connections, args.seconds, keyed=args.keyed)
        print(
            f"{row['name']:<32} p50 {row['p50_ms']:7.1f} ms  p99 {row['p99_ms']:7.1f} ms  "
            f"longest {row['max_ms']:7.1f} ms  processor {row['cpu']:.2f}",
            flush=True,
        )
    return 0
