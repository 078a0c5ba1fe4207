"""What an open stream costs a gateway: memory while it is open, and processor time for each of its frames.

    python benchmarks gateway.open_streams --streams 8000

A gateway between clients and two engines of this process, which write a frame to each stream in rounds and end them
all; each client counts its frames. A stream takes two open files of the gateway, and one each of its client and its
engine here.
"""

import argparse
import asyncio
import json
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.fake_engine import CHAT, DONE, EVENT, FakeEngine
from harness.processes import cpu_seconds, resident_bytes
from harness.results import write_json
from harness.servers import Server, free_port, gateway_server, local_url, route_to, started

MODEL = "m"
SPARE_FILES = 200
"""Of a process, for all but its streams."""
OPENING = 100
"""Streams that are opened at once."""
STALL_SECONDS = 120.0
"""Without a frame, after which a round ends."""


class ClientStream(asyncio.Protocol):
    """Sends one chat and counts the events of its answer."""

    def __init__(self, port: int, on_event: Callable[[], None], prompt_bytes: int = 400) -> None:
        body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "a" * prompt_bytes}]}
        payload = json.dumps(body).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload
        self._on_event = on_event
        self.began = asyncio.get_running_loop().create_future()
        self.events = 0
        self.is_whole = False
        self._tail = b""
        """Too short for the last event."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)
        self._request = b""

    def data_received(self, data: bytes) -> None:
        tail, data = self._tail, self._tail + data
        self.events += data.count(EVENT) - tail.count(EVENT)
        self.is_whole = self.is_whole or DONE in data
        self._tail = data[1 - len(DONE) :]
        if self.events and not self.began.done():
            self.began.set_result(None)
        self._on_event()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.began.done():
            self.began.set_exception(exc or ConnectionError("closed before the first frame"))


class Measurement:
    """The streams of one run."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.clients: list[ClientStream] = []
        self._came = asyncio.Event()

    async def open_streams(self, count: int, port: int, prompt_bytes: int) -> None:
        """Returns once each has its first frame."""
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(OPENING)

        async def open_stream() -> None:
            async with places:
                _, client = await loop.create_connection(
                    lambda: ClientStream(port, self._came.set, prompt_bytes), "127.0.0.1", port
                )
                self.clients.append(client)
                await client.began
            progress.update()

        with tqdm(total=count, desc="opening", mininterval=5) as progress:
            await asyncio.gather(*(open_stream() for _ in range(count)))

    async def wait_for(self, reached: Callable[[], bool]) -> None:
        """Returns once ``reached``, or when no stream has brought anything for long."""
        while not reached():
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), STALL_SECONDS)
            except TimeoutError:
                return

    def count_events(self) -> int:
        return sum(client.events for client in self.clients)


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    measurement, ports = Measurement(), [free_port(), free_port()]
    for port in ports:
        await measurement.engine.serve(port)
    connections = str(max(4096, 2 * args.streams))
    gateway = gateway_server(folder, {MODEL: route_to(*map(local_url, ports))}, "--max-connections", connections)
    with started([gateway]):
        return await measure_gateway(args, measurement, gateway)


async def measure_gateway(args: argparse.Namespace, measurement: Measurement, gateway: Server) -> dict[str, Any]:
    await measurement.open_streams(1, gateway.port, args.prompt_bytes)  # what the first one loads is of no other
    empty, one = resident_bytes(gateway.pid), cpu_seconds(gateway.pid)
    await measurement.open_streams(args.streams - 1, gateway.port, args.prompt_bytes)
    opening = cpu_seconds(gateway.pid) - one
    before = cpu_seconds(gateway.pid)
    for number in range(args.rounds):
        measurement.engine.write_frames()
        expected = args.streams * (2 + number)
        await measurement.wait_for(lambda expected=expected: measurement.count_events() >= expected)  # type: ignore[misc]
    relaying, full = cpu_seconds(gateway.pid) - before, resident_bytes(gateway.pid)
    measurement.engine.end_streams()
    await measurement.wait_for(lambda: all(client.is_whole for client in measurement.clients))
    return {
        "streams": args.streams,
        "frames lost": args.streams * (1 + args.rounds) - measurement.count_events(),
        "streams without an end": sum(not client.is_whole for client in measurement.clients),
        "memory before, MiB": round(empty / 2**20, 1),
        "memory with all open, MiB": round(full / 2**20, 1),
        "kB a stream": round((full - empty) / (args.streams - 1) / 1000, 1),
        "ms to open a stream": round(opening / (args.streams - 1) * 1000, 3),
        "us a frame": round(relaying / (args.streams * args.rounds) * 1e6, 1),
    }


def main() -> int:
    parser = RunnerParser(__doc__, json="file for the results")
    parser.add_number("--streams", 8000)
    parser.add_number("--prompt-bytes", 400, "of each request")
    parser.add_number("--rounds", 5, "frames of each stream after its first")
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The gateway accepts requests in 15/16 of its connections, at most half of its files, and one sender has 7/8.
    needed = max(2 * args.streams + SPARE_FILES, int(2 * args.streams * 16 / 15 * 8 / 7) + SPARE_FILES)
    if needed > most:
        parser.error(f"--streams is {args.streams}: a process may open {most} files, and {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(measure(args, Path(folder)))
    for name, value in results.items():
        print(f"{name:<28}{value}")
    write_json(args.json, results)
    return 1 if results["frames lost"] or results["streams without an end"] else 0
