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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gateway.cost_load import STALL_SECONDS, Connection
from harness.arguments import RunnerParser
from harness.fake_engine import CHAT, RawEngine
from harness.processes import cpu_seconds, resident_bytes
from harness.results import write_json
from harness.servers import Server, free_port, gateway_server, local_url, route_to, started

MODEL = "m"
SPARE_FILES = 200
"""Files of a process for all but its streams."""
OPENING = 100
"""Streams that are opened at once."""


class Measurement:
    """The streams of one run."""

    def __init__(self) -> None:
        self.engine = RawEngine()
        self.clients: list[Connection] = []
        self._answers: list[asyncio.Future[None]] = []

    async def open_streams(self, count: int, port: int, prompt_bytes: int) -> None:
        """Returns once each has its first frame."""
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(OPENING)
        body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "a" * prompt_bytes}]}
        payload = json.dumps(body).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        request = [f"{head}Content-Length: {len(payload)}\r\n\r\n".encode(), payload]

        async def open_stream() -> None:
            async with places:
                _, client = await loop.create_connection(Connection, "127.0.0.1", port)
                self.clients.append(client)
                self._answers.append(client.send_request(request))
                await client.await_events(1)
            progress.update()

        with tqdm(total=count, desc="opening", mininterval=5) as progress:
            await asyncio.gather(*(open_stream() for _ in range(count)))

    async def wait_for(self, reached: Callable[[], bool]) -> None:
        """Returns once ``reached``, or when no stream has brought anything for long."""
        seen, since = 0, time.monotonic()
        while not reached() and time.monotonic() - since < STALL_SECONDS:
            if self.count_events() > seen:
                seen, since = self.count_events(), time.monotonic()
            await asyncio.sleep(0.02)

    def count_open(self) -> int:
        """Streams without an end."""
        return sum(not answer.done() or answer.exception() is not None for answer in self._answers)

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
    await measurement.wait_for(lambda: not measurement.count_open())
    return {
        "streams": args.streams,
        "frames lost": args.streams * (1 + args.rounds) - measurement.count_events(),
        "streams without an end": measurement.count_open(),
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
