"""Looks for answers of engines, and routing tables, that silence a gateway, make it grow or cost others an answer.

    python benchmarks hostile.attackers.fuzz_gateway --seconds 120
    python benchmarks hostile.attackers.fuzz_gateway --seconds 3600 --seed 7         # an hour

One gateway stands before a fleet of hostile engines and an honest one: frames, journals, whole answers, heads, text
chains and hand-overs of the hostile ones are drawn anew at each call. Another gateway reads routing tables that are
drawn anew. An operator's port gets drawn requests. A process beside each of the three calls its /health every 10 ms and
reads its resident memory. Ends with 1 where a bound is passed, a process ends, or an honest call fails.
"""

import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from harness.arguments import RunnerParser
from harness.fake_engine import read_requests, serve_connections
from harness.health import Watched
from harness.load import open_session
from harness.servers import PATERNOSTER, Server, child_process, free_port, gateway_server, local_url, route_to, started
from hostile.attackers.drawn_answers import (
    HOSTILE,
    MEDIA_TYPES,
    WHOLE,
    draw_chains,
    draw_frames,
    draw_head,
    draw_json,
    draw_progress,
    draw_request,
    draw_tables,
)
from paternoster_contract import stream_journal
from paternoster_contract.http import paths
from paternoster_contract.text_chains import stream as chains

HONEST = "honest"
HOSTILE_ENGINES, CALLERS, HONEST_PERIOD_SECONDS = 4, 12, 0.5
CALL_SECONDS = 8.0
"""After which a caller of hostile engines leaves."""
HONEST_SECONDS = 20.0
"""After which an honest call has failed."""
HOLD_SECONDS = 3.0
"""Time for which an answer stands open in the middle."""
WINDOW_SECONDS = 1.0
"""Time between two readings of the longest silence and the largest memory."""
SHOWN = 5
DRAWN: Sequence[tuple[Callable[[random.Random], bytes], str]] = (
    (draw_frames, MEDIA_TYPES[0]), (draw_json, MEDIA_TYPES[1]), (draw_progress, MEDIA_TYPES[2]),
)  # fmt: skip


async def send_answer(draw: random.Random, writer: asyncio.StreamWriter, body: bytes, media_type: str) -> bool:
    """Send ``body`` in one of the ways that HTTP has, or in none; returns whether the connection goes on."""
    writer.write(draw_head(draw, media_type))
    way = draw.random()
    if way < 0.25:
        writer.write(b"Content-Length: %d\r\n\r\n" % draw.choice([len(body)] * 5 + [0, len(body) + 1, 10**18]))
        writer.write(body)
    elif way < 0.3:
        writer.write(b"\r\n" + body)
        return False
    else:
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        size = draw.choice([1, 7, 64, 2**10, 2**16, 2**16])
        for start in range(0, min(len(body), 3000 * size), size):
            piece = body[start : start + size]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        ends = (b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"zz\r\n", b"")
        writer.write(draw.choice(ends))
    await writer.drain()
    if draw.random() < 0.1:
        await asyncio.sleep(draw.uniform(0, HOLD_SECONDS))
    if draw.random() < 0.05:
        writer.transport.abort()
    return draw.random() < 0.9


async def answer_hostile(draw: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection to a hostile engine."""
    async for method, path, _ in read_requests(reader):
        if path.startswith(paths.TEXT_CHAINS):
            body, media_type = draw_chains(draw), chains.MEDIA_TYPE
        elif method == "GET" and draw.random() < 0.9:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
            writer.write(head + f"{stream_journal.JOURNAL}: fp\r\n\r\n{{}}".encode())
            continue
        else:
            write, media_type = draw.choice(DRAWN)
            body = write(draw)
            media_type = media_type if draw.random() < 0.9 else draw.choice(MEDIA_TYPES)
        if not await send_answer(draw, writer, body, media_type):
            break


async def answer_tables(draw: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection to what stands in for an operator."""
    tables = draw_tables(draw)
    async for _ in read_requests(reader):
        media_type, text = next(tables)
        if not await send_answer(draw, writer, text, media_type):
            break


async def answer_honest(_: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection to an engine that answers each call at once."""
    body = json.dumps(WHOLE).encode()
    async for _method, _path, _body in read_requests(reader):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await writer.drain()


def serve(answer: Callable[..., Coroutine[Any, Any, None]], ports: Sequence[int], seed: str) -> None:
    """Listen on ``ports`` until killed."""
    serve_connections(partial(answer, random.Random(seed)), *ports)


class Callers:
    """Clients of the gateway and of the operator's port, and what came of their calls."""

    def __init__(self, gateway: str, operator_port: int, seed: str) -> None:
        self.answers, self.failed = Counter[str](), Counter[str]()
        self._gateway = gateway
        self._operator_port = operator_port
        self._draw = random.Random(f"{seed} callers")

    async def run_for(self, seconds: float) -> None:
        """Call until then; a call of a hostile engine may end in any way."""
        async with open_session() as session:
            end = time.monotonic() + seconds
            hostile = [self._call_hostile(session, end) for _ in range(CALLERS)]
            await asyncio.gather(self._call_honest(session, end), self._call_operator(end), *hostile)

    async def _call_hostile(self, session: aiohttp.ClientSession, end: float) -> None:
        while time.monotonic() < end:
            body: dict[str, object] = {
                "model": HOSTILE,
                "messages": [{"role": "user", "content": str(self._draw.random())}],
            }
            kind, status = "whole", "left"
            if self._draw.random() < 0.6:
                kind, body["stream"] = "stream", True
            with suppress(TimeoutError):
                async with asyncio.timeout(CALL_SECONDS * self._draw.random()):
                    try:
                        async with session.post(f"{self._gateway}/v1/chat/completions", json=body) as response:
                            status = str(response.status)
                            async for _ in response.content.iter_any():
                                pass
                    except aiohttp.ClientError as error:
                        status = type(error).__name__
            self.answers[f"{kind} {status}"] += 1

    async def _call_honest(self, session: aiohttp.ClientSession, end: float) -> None:
        body = {"model": HONEST, "messages": [{"role": "user", "content": "a"}]}
        while time.monotonic() < end:
            try:
                async with asyncio.timeout(HONEST_SECONDS):
                    async with session.post(f"{self._gateway}/v1/chat/completions", json=body) as response:
                        await response.read()
                        if response.status != 200:
                            self.failed[f"HTTP {response.status}"] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                self.failed[type(error).__name__] += 1
            self.answers["honest"] += 1
            await asyncio.sleep(HONEST_PERIOD_SECONDS)

    async def _call_operator(self, end: float) -> None:
        while time.monotonic() < end:
            with suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._operator_port)
                try:
                    async with asyncio.timeout(0.5):
                        writer.write(draw_request(self._draw))
                        await writer.drain()
                        while await reader.read(2**16):
                            pass
                finally:
                    writer.transport.abort()
            self.answers["operator"] += 1
            await asyncio.sleep(0.02)


@dataclass
class Target:
    """A process that is attacked."""

    server: Server
    watched: Watched
    longest_silence_seconds: float = 0.0
    most_bytes: int = 0

    def read(self) -> None:
        longest, most = self.watched.read()
        self.longest_silence_seconds = max(self.longest_silence_seconds, longest)
        self.most_bytes = max(self.most_bytes, most)


@contextmanager
def targets(folder: Path, seed: str) -> Iterator[list[Target]]:
    """Two gateways and an operator, each with what attacks it and a process that watches it."""
    hostile_ports, honest_port, tables_port = [free_port() for _ in range(HOSTILE_ENGINES)], free_port(), free_port()
    listening = (
        (answer_hostile, hostile_ports), (answer_honest, [honest_port]), (answer_tables, [tables_port]),
    )  # fmt: skip
    with ExitStack() as stack:
        for answer, ports in listening:
            stack.enter_context(child_process(serve, answer, ports, f"{seed} {ports}", port=ports[0]))
        routes = {
            name: route_to(*map(local_url, ports), fleet=name, namespace=name, hand_over=True)
            for name, ports in ((HOSTILE, hostile_ports), (HONEST, [honest_port]))
        }
        servers = [gateway_server(folder, routes, name="engines")]
        servers.append(gateway_server(folder, local_url(tables_port) + paths.ROUTES, name="tables"))
        for server in servers:
            server.ready = paths.HEALTH
        servers.append(_operator_without_cluster(folder))
        stack.enter_context(started(servers))
        found = [Target(server, Watched(server)) for server in servers]
        for target in found:
            stack.callback(target.watched.end)
        yield found


def _operator_without_cluster(folder: Path) -> Server:
    kubeconfig, port = folder / "kubeconfig", free_port()
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "away",
        "contexts": [{"name": "away", "context": {"cluster": "away", "user": "nobody", "namespace": "default"}}],
        "clusters": [{"name": "away", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "nobody", "user": {}}],
    }  # fmt: skip
    kubeconfig.write_text(yaml.safe_dump(document))
    command = [PATERNOSTER, "operator", "-A", "--host", "127.0.0.1", "--port", str(port)]
    env = {"KUBECONFIG": str(kubeconfig), "HOME": str(folder)}
    return Server("operator", command, port, folder / "operator.log", env, ready=paths.OPERATOR_HEALTH)


async def attack(found: Sequence[Target], seconds: float, seed: str) -> Callers:
    """Call for so long, and read what is watched each second."""
    engines, _, operator = found
    callers = Callers(engines.server.url, operator.server.port, seed)
    calling = asyncio.create_task(callers.run_for(seconds))
    while not calling.done():
        await asyncio.wait([calling], timeout=WINDOW_SECONDS)
        for target in found:
            await asyncio.to_thread(target.read)
    await calling
    return callers


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--seconds", 120.0, "of the run")
    parser.add_argument("--seed", default=str(random.randrange(10**6)), help="of the run (default: any)")
    parser.add_number("--max-silence", 0.2, "seconds of /health")
    parser.add_number("--max-memory", 512.0, "MiB")
    args = parser.parse_args()
    passed = True
    with tempfile.TemporaryDirectory(prefix="paternoster-fuzz-") as folder, targets(Path(folder), args.seed) as found:
        callers = asyncio.run(attack(found, args.seconds, args.seed))
        print(f"seed {args.seed}, {args.seconds:g} s: {dict(sorted(callers.answers.items()))}")
        print(f"honest calls that failed: {dict(callers.failed)}")
        for target in found:
            silence, most = target.longest_silence_seconds, target.most_bytes / 2**20
            ended = target.server.process is None or target.server.process.poll() is not None
            passed = passed and not ended and silence <= args.max_silence and most <= args.max_memory
            print(f"{target.server.name}: silent for {silence:.3f} s, {most:.0f} MiB{', ended' if ended else ''}")
            for line in _find_tracebacks(target.server.log):
                passed = False
                print(f"  in its log: {line}")
    return int(not passed or bool(callers.failed))


def _find_tracebacks(log: Path) -> list[str]:
    """The last line of each traceback in a log, once each."""
    found: dict[str, None] = {}
    for text in log.read_text(errors="replace").split("Traceback (most recent call last)")[1:]:
        lines = [line.strip() for line in text.splitlines() if line.startswith("    ") and line[4:5].strip()]
        found[lines[0][:200] if lines else "a traceback"] = None
    return list(found)[:SHOWN]
