"""What the journal of streams costs while nothing fails: processor time of gateway and engine, on and off in turns.

    python benchmarks streams.cost --gateway-turns 100 --engine-turns 10 --json result.json

The gateway forwards streams of an engine in this process, which writes a frame every 20 ms as a fast engine does, to
those with a journal and to those without in turns of a second. The engine is a real one, whose streams have a journal
if their calls have an id. Each turn with the journal is divided by the one without it beside it; printed are the median
and the range of that. Other work on the machine moves tokens a second by far more than the journal does, so that the
last line has what the journal adds to the processor time of the thread that writes it, as a share of all the engine's.
"""

import asyncio
import itertools
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import aiohttp
from aiohttp import web
from rich.console import Console
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.fake_engine import CHUNK
from harness.load import open_session
from harness.processes import cpu_seconds, thread_seconds
from harness.results import write_json
from harness.servers import Server, gateway_server, route_to, started
from hostile.shared_fleets import CHAT, fleet_of_engines
from paternoster_contract.access.identity import HEADER, Identity
from paternoster_contract.stream_journal import (
    COMMENT,
    JOURNAL,
    STREAM_ID,
    JournalEntry,
    StreamId,
    encode_entries,
)
from paternoster_e2e.fakes.engine import FakeEngine

STREAMS = 32
"""Streams of each kind, open at once through the gateway."""
TURN_SECONDS = 1.0
FRAME_SECONDS = 0.02
ENGINE_STREAMS = 8
TOKENS = 96
"""Tokens of each stream of the engine."""


@dataclass
class Result:
    """Result of each turn, first with the journal, then without."""

    gateway_microseconds: list[tuple[float, float]] = field(default_factory=list)
    """Processor time of the gateway a frame."""
    http_microseconds: list[tuple[float, float]] = field(default_factory=list)
    """Processor time a token of the engine's thread that writes streams."""
    engine_microseconds: list[tuple[float, float]] = field(default_factory=list)
    """Processor time a token of all its threads."""
    tokens_per_second: list[tuple[float, float]] = field(default_factory=list)

    @property
    def journal_share(self) -> float:
        """What the journal adds to the engine's processor time, by the thread that writes it."""
        added = median(on - off for on, off in self.http_microseconds)
        return added / median(off for _, off in self.engine_microseconds)


def describe(pairs: Sequence[tuple[float, float]], unit: str) -> str:
    """The medians of both, and how their ratio spreads over the turns."""
    ratios = sorted(on / off for on, off in pairs)
    low, high = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4 - (len(ratios) % 4 == 0)]
    return (
        f"{median(on for on, _ in pairs):.3f} {unit} with the journal, {median(off for _, off in pairs):.3f} without: "
        f"ratio {median(ratios):.4f} (middle half {low:.4f} to {high:.4f}, range {ratios[0]:.4f} to {ratios[-1]:.4f})"
    )


class FrameSource:
    """Streams of two kinds that are all open; those of one kind at a time get a frame every :data:`FRAME_SECONDS`."""

    def __init__(self) -> None:
        self.open = 0
        self.written = 0
        self._active: bool | None = None
        self._changed = asyncio.Condition()

    async def activate(self, kind: bool | None) -> None:
        """``kind``: whether those with a journal; None: no stream."""
        async with self._changed:
            self._active = kind
            self._changed.notify_all()

    async def stream_frames(self, _: FakeEngine, request: web.Request) -> web.StreamResponse:
        """Until the connection is closed, of the kind that the model's name says."""
        journal = (await request.json())["model"] == "on"
        headers = {"Content-Type": "text/event-stream"} | ({JOURNAL: "fp_0123456789ab"} if journal else {})
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(CHUNK)
        self.open += 1
        for number in itertools.count():
            async with self._changed:
                await self._changed.wait_for(lambda: self._active is journal)
            await response.write((COMMENT + _encoded(number) + b"\n" if journal else b"") + CHUNK)
            self.written += 1
            await asyncio.sleep(FRAME_SECONDS)
        raise AssertionError


def _encoded(token: int) -> bytes:
    return encode_entries([JournalEntry(0, (20_000 + token,))]).encode()


@asynccontextmanager
async def gateway_before(source: FrameSource, folder: Path) -> AsyncIterator[Server]:
    """A gateway that sends the models ``on`` and ``off`` to an engine with the frames of ``source``."""
    async with FakeEngine(behave=source.stream_frames).listening() as engine:
        gateway = gateway_server(folder, dict.fromkeys(("on", "off"), route_to(engine.url)))
        with started([gateway]):
            yield gateway


async def read(session: aiohttp.ClientSession, url: str, body: object, headers: dict[str, str]) -> int:
    """The number of frames of one stream; raises ``RuntimeError`` for another answer."""
    async with session.post(url, json=body, headers=headers) as response:
        text = await response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {text[:300]!r}")
        return text.count(b"data: ")


async def in_turns(turns: int, what: str, measure: Callable[[bool], Awaitable[None]]) -> None:
    """``measure`` with the journal and without, in an order that changes, after one turn that does not count."""
    for number in tqdm(range(turns), desc=what):
        for journal in (True, False) if number % 2 else (False, True):
            await measure(journal)


async def measure_gateway(session: aiohttp.ClientSession, folder: Path, turns: int, result: Result) -> None:
    fake = FrameSource()
    async with gateway_before(fake, folder) as gateway, asyncio.TaskGroup() as tasks:
        url = f"{gateway.url}/v1/chat/completions"
        bodies = [{"model": model, "stream": True} for model in ("on", "off") for _ in range(STREAMS)]
        readers = [tasks.create_task(read(session, url, body, {})) for body in bodies]
        while fake.open < len(bodies):  # noqa: ASYNC110 - a few of them
            await asyncio.sleep(0.1)
        found: dict[bool, list[float]] = {True: [], False: []}

        async def turn(journal: bool) -> None:
            before, written = cpu_seconds(gateway.pid), fake.written
            await fake.activate(journal)
            await asyncio.sleep(TURN_SECONDS)
            await fake.activate(None)
            await asyncio.sleep(0.1)  # for the last frames
            found[journal].append((cpu_seconds(gateway.pid) - before) / (fake.written - written) * 1e6)

        await in_turns(turns + 1, "gateway", turn)
        result.gateway_microseconds = list(zip(found[True][1:], found[False][1:], strict=True))
        for reader in readers:
            reader.cancel()


async def measure_engine(session: aiohttp.ClientSession, folder: Path, turns: int, result: Result) -> None:
    with fleet_of_engines(folder, {}, num_engines=1) as fleet:
        (engine,) = fleet.engines
        key = (folder / "engine-0-keys").read_text().strip()
        costs: dict[bool, list[float]] = {True: [], False: []}
        http: dict[bool, list[float]] = {True: [], False: []}
        rates: dict[bool, list[float]] = {True: [], False: []}
        body = {"model": CHAT, "prompt": "Once upon a time", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}

        async def turn(journal: bool) -> None:
            def headers() -> dict[str, str]:
                own = {"Authorization": f"Bearer {key}", HEADER: Identity(tenant="quiet").encode()}
                return own | ({STREAM_ID: StreamId(uuid.uuid4().hex, 1_700_000_000).encode()} if journal else {})

            pid, began, url = engine.pid, time.monotonic(), f"{engine.url}/v1/completions"
            before, http_before = cpu_seconds(pid), thread_seconds(pid)
            await asyncio.gather(*(read(session, url, body, headers()) for _ in range(ENGINE_STREAMS)))
            tokens = ENGINE_STREAMS * TOKENS
            costs[journal].append((cpu_seconds(pid) - before) / tokens * 1e6)
            http[journal].append((thread_seconds(pid) - http_before) / tokens * 1e6)
            rates[journal].append(tokens / (time.monotonic() - began))

        await in_turns(turns + 1, "engine", turn)
        result.engine_microseconds = list(zip(costs[True][1:], costs[False][1:], strict=True))
        result.http_microseconds = list(zip(http[True][1:], http[False][1:], strict=True))
        result.tokens_per_second = list(zip(rates[True][1:], rates[False][1:], strict=True))


async def run(folder: Path, gateway_turns: int, engine_turns: int) -> Result:
    result = Result()
    async with open_session() as session:
        await measure_gateway(session, folder, gateway_turns, result)
        await measure_engine(session, folder, engine_turns, result)
    return result


def main() -> int:
    parser = RunnerParser(__doc__, json="where the result is written")
    parser.add_number("--gateway-turns", 100)
    parser.add_number("--engine-turns", 10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(run(Path(folder), args.gateway_turns, args.engine_turns))
    write_json(args.json, result)
    console = Console()
    console.print("gateway, a frame:", describe(result.gateway_microseconds, "µs"), highlight=False)
    console.print("engine, a token:", describe(result.engine_microseconds, "µs"), highlight=False)
    console.print("its thread of HTTP:", describe(result.http_microseconds, "µs"), highlight=False)
    console.print("engine:", describe(result.tokens_per_second, "tokens/s"), highlight=False)
    console.print(f"the journal adds {result.journal_share:.2%} to the engine's processor time", highlight=False)
    return 0
