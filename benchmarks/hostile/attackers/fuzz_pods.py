"""Looks for answers of pods and gateways that silence the operator, make it grow, or delay looks at honest fleets.

    python benchmarks hostile.attackers.fuzz_pods --seconds 120
    python benchmarks hostile.attackers.fuzz_pods --seconds 3600 --seed 7         # an hour

A process reads engines as the operator does: its scraper, its work queue, its periods, and one law a fleet. Ten fleets
of each type of engine have a hostile pod, whose answers are drawn anew at each look; ten others are honest. Gateways
are hostile, too. A process beside it asks its /health every 10 ms and reads its resident memory. Ends with 1 where a
bound is passed, an error leaves a pod's row, or an honest look is later than a period.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from urllib.request import urlopen

from aiohttp import web

from harness.arguments import RunnerParser
from harness.fake_engine import read_requests, serve_connections
from harness.health import Process, Watched
from harness.servers import child_process, free_port
from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.http import paths
from paternoster_contract.stats import EngineStats
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.autoscaling.autoscaler import Autoscaler
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.engines.adapter import EngineAdapter, RuntimeType
from paternoster_operator.engines.catalogue import ADAPTERS, PATERNOSTER, TARGET_ADAPTERS
from paternoster_operator.plausible import find_implausible
from paternoster_operator.queue import WorkQueue
from paternoster_operator.scrape import Scraper
from paternoster_operator.settings import Settings

FLEETS_A_TYPE, HONEST_FLEETS = 10, 10
WINDOW_SECONDS = 1.0
"""Time that each pair of a longest silence and a largest memory is of."""
WARM_UP_SECONDS = 5.0
KEPT_TEXTS, NEW_SHARE = 24, 0.01
"""Texts kept of each path, and how many of the answers are drawn anew."""
SHOWN = 10
STATS: dict[str, object] = {
    **{name: 0 for name in EngineStats.model_fields if name.endswith("_total")},
    "instance": "a", "model": "m", "state": "ready", "started_at": 0, "time": 0, "last_tick_age_seconds": 0,
    "capacity": 64, "live_cap": 64, "running": 8, "waiting": 2, "kv_block_size": 32, "kv_blocks": 100,
    "kv_blocks_used": 10, "kv_blocks_cached": 0, "kv_projected_peak": 0, "max_batched_tokens": 8192,
    "token_budget": 8192, "step_sums": [1.0] * 21,
}  # fmt: skip
SOUND: dict[str, dict[str, object]] = {
    "/stats": STATS,
    "/version": {"version": "0.32.0"},
    "/paternoster/limits": {**STATS, "version": "0.32.0", "scheduled_tokens_total": 1, "max_model_len": 512},
    "/server_info": {
        "version": "0.5.2",
        "internal_states": [{"pp_max_micro_batch_size": 4, "effective_max_running_requests_per_dp": 8}],
    },
}  # fmt: skip
NAMES = sorted({name for each in ADAPTERS.values() for request in each.stats_requests for name in request.samples})
NUMBERS = (
    "9" * 300, "9" * 400, "9" * 5000, "1e308", "1e400", "-1", "5e-324", "1e-300", "NaN", "Infinity", "0", "1", "0.5",
    str(2**53), "null", '"x"', "[]",
)  # fmt: skip


def draw_text(draw: random.Random, path: str) -> bytes:
    """An answer to ``path``, of up to what is read of any."""
    size = draw.choice([2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22])
    units = (
        b"[", b'{"a":', b"{},", b"\n", b" ", b'"', b"\\", b"9", b"\xff", b"a\n", b'"\\"', b"1,", b"# HELP a\n",
        draw.choice(NAMES).encode()[:-1] + b"\n", draw.choice(NAMES).encode() + b" 1\n",
        draw.choice(NAMES).encode() + b'{l="x"} 1\n',
    )  # fmt: skip
    kind = draw.randrange(7)
    if kind == 0:
        unit, start = draw.choice(units), draw.choice([b"", b'{"models": {', b'{"a": [', b"["])
        return start + unit * (size // len(unit))
    if kind == 1:
        label = draw.choice([b'l="x",', b'l%d="x",', b'l="\\"",', b'="",', b" ", b",", b'l="'])
        labels = b"".join(label % i if b"%d" in label else label for i in range(size // len(label)))
        return draw.choice(NAMES).encode() + b"{" + labels + b"} 1\n"
    if kind == 2:
        names = b",".join(b'"%d": %s' % (i, draw.choice([b"{}", b"1", b"[]"])) for i in range(size // 16))
        field = draw.choice([b"models", b"start_seconds", b"default_parameters", b"internal_states", b"x"])
        return b'{"instance": "g", "time": 0, "%s": {%s}}' % (field, names)
    if path == "/metrics":
        lines = "".join(f'{name}{{le="{draw.choice(["1.0", "+Inf"])}"}} {draw.randrange(99)}\n' for name in NAMES)
        return mutate(draw, lines, " [0-9]+$", " ").encode()
    return mutate(draw, json.dumps(SOUND.get(path, STATS)), ": [0-9.]+", ": ").encode()


def mutate(draw: random.Random, text: str, number: str, before: str) -> str:
    """``text`` with other numbers in a few places."""
    return re.sub(
        number, lambda found: before + draw.choice(NUMBERS) if draw.random() < 0.1 else found[0], text, flags=re.M
    )


def serve_answers(port: int, seed: str) -> None:
    """Be every honest pod, or every hostile one and the gateways: those answer what is drawn."""
    draw, texts = random.Random(seed), dict[tuple[str, int], bytes]()

    def choose_text(path: str) -> bytes:
        """One of some texts that are drawn anew now and then: to draw one takes longer than to read it."""
        place = path, draw.randrange(KEPT_TEXTS)
        if place not in texts or draw.random() < NEW_SHARE:
            texts[place] = draw_text(draw, path)
        return texts[place]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for _, path, _ in read_requests(reader):
            if path.startswith("/honest"):
                STATS["requests_total"] = int(time.monotonic())
                write_answer(writer, 200, json.dumps(STATS).encode())
            else:
                await be_hostile(writer, f"/{path.split('/', 2)[-1]}")
            await writer.drain()

    def write_answer(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
        writer.write(body)

    async def be_hostile(writer: asyncio.StreamWriter, path: str) -> None:
        body, way = choose_text(path), draw.random()
        if way < 0.7:
            write_answer(writer, draw.choice([200, 200, 200, 200, 401, 404, 501]), body)
        elif way < 0.8:
            await asyncio.sleep(draw.choice([0.5, 1.9, 5]))
            write_answer(writer, 200, body)
        elif way < 0.9:
            writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
            size = draw.choice([1, 32, 2**16])
            for start in range(0, min(len(body), 4096 * size), size):
                piece = body[start : start + size]
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
        else:
            writer.write(b"HTTP/1.1 200 X\r\n\r\n")
            while True:
                writer.write(body or b"\n")
                await writer.drain()

    for path in (*SOUND, "/metrics"):
        for number in range(KEPT_TEXTS):
            texts[path, number] = draw_text(draw, path)
    serve_connections(answer, port)


class Reader:
    """Looks at fleets of one pod each, as the operator does."""

    def __init__(self, honest_url: str, url: str) -> None:
        self.looks, self.errors, self.faults = Counter[str](), Counter[str](), Counter[str]()
        self.latest: dict[str, float] = {}
        self.late = 0.0
        """Seconds by which the latest honest look came after its time."""
        self._urls, self._settings, self._cases = (honest_url, url), Settings(), count()
        self._scraper = Scraper(timeout_seconds=self._settings.scrape_timeout_seconds, gateway_url=None)
        self._laws: dict[str, Autoscaler] = {}
        self._fleets: dict[str, EngineAdapter] = {f"honest-{i}": PATERNOSTER for i in range(HONEST_FLEETS)}
        for type_ in RuntimeType:
            for i in range(FLEETS_A_TYPE):
                self._fleets[f"hostile-{type_}-{i}"] = (ADAPTERS if i % 2 else TARGET_ADAPTERS)[type_]
        self.queue: WorkQueue[str] = WorkQueue(
            self._look_at_fleet, workers=self._settings.workers, group=lambda key: key
        )

    async def start(self) -> None:
        for key in self._fleets:
            self.queue.add(key)
        self.queue.start()

    async def _look_at_fleet(self, key: str) -> float:
        now, honest = time.monotonic(), key.startswith("honest")
        if honest and key in self.latest:
            self.late = max(self.late, now - self.latest[key] - self._settings.look_seconds)
        self.looks[key.split("-")[0]] += 1
        try:
            await self._read(key, self._urls[0] + "/honest" if honest else f"{self._urls[1]}/{next(self._cases)}")
        except Exception as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
        self.latest[key] = time.monotonic()
        return self._settings.look_seconds

    async def _read(self, key: str, url: str) -> None:
        adapter, now = self._fleets[key], time.monotonic()
        law = self._laws.setdefault(key, Autoscaler(ScalingPolicy.from_spec(SPEC)))
        (stats, faults, _), _, _ = await asyncio.gather(
            self._scraper.read_engines({"a": url}, {"a": adapter}, ["k1", "k2"]),
            self._read_gateways() if key == "hostile-SGLang-0" else asyncio.sleep(0),
            asyncio.sleep(0) if key.startswith("honest") else self._scraper.read_downloads({"a": url}),
        )
        for fault in faults.values():
            self.faults[re.sub(r"[^A-Za-z]+", " ", fault)[:40]] += 1
        last = law.windows.latest_sample("a")
        seconds = law.windows.seconds_since_latest("a", now)
        believed = {
            pod: each for pod, each in stats.items()
            if find_implausible(each, last, seconds, capacity=None, queue=1024) is None
        }  # fmt: skip
        self.looks["believed"] += len(believed)
        law.observe(Observation(now, 1, ["a"], (), (), believed))
        law.decide(now)
        if not key.startswith("honest"):
            await self._scraper.set_limits(url, LiveConfigPatch(live_cap=1), ["k1", "k2"], adapter)

    async def _read_gateways(self) -> None:
        await self._scraper._gateway_stats(f"{self._urls[1]}/gateway{paths.STATS}")

    async def report(self, _: web.Request) -> web.Response:
        text = {"looks": self.looks, "errors": self.errors, "faults": self.faults.most_common(12), "late": self.late}
        return web.json_response(text)


SPEC = LLMDeploymentSpec.model_validate(
    {
        "model": {"source": "file:///m"},
        "engine": {"maxNumSeqs": 64},
        "concurrency": {"mode": "Auto"},
        "autoscaling": {"minReplicas": 1, "maxReplicas": 10},
    }
)


def read_pods(port: int, *engines_ports: int) -> None:
    """Be the operator, with /health and /report on ``port``."""
    import logging

    logging.disable(logging.WARNING)  # of calls that no pod took

    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    async def run() -> None:
        reader, app = Reader(*(f"http://127.0.0.1:{each}" for each in engines_ports)), web.Application()
        app.router.add_get("/health", answer)
        app.router.add_get("/report", reader.report)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await reader.start()
        await asyncio.Event().wait()

    asyncio.run(run())


def run_for(seconds: float, seed: str) -> Iterator[tuple[float, int] | dict[str, object]]:
    """The longest silence and the most bytes of each second; at last the report."""
    honest_port, engines_port, port = free_port(), free_port(), free_port()
    with ExitStack() as stack:
        for each in (honest_port, engines_port):
            stack.enter_context(child_process(serve_answers, each, seed, port=each))
        pid = stack.enter_context(child_process(read_pods, port, honest_port, engines_port, port=port))
        watched = Watched(Process(port, pid))
        stack.callback(watched.end)
        time.sleep(WARM_UP_SECONDS)
        watched.read()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(WINDOW_SECONDS)
            yield watched.read()
        with urlopen(f"http://127.0.0.1:{port}/report", timeout=60) as response:
            yield json.load(response)


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--seconds", 120.0, "of the run")
    parser.add_argument("--seed", default=str(random.randrange(10**6)), help="of the run (default: any)")
    parser.add_number("--max-silence", 0.2, "seconds of /health")
    parser.add_number("--max-memory", 512.0, "MiB")
    args = parser.parse_args()
    *windows, report = run_for(args.seconds, args.seed)
    assert isinstance(report, dict)
    silences, sizes = zip(*(window for window in windows if isinstance(window, tuple)), strict=True)
    longest, most = max(silences), max(sizes) / 2**20
    print(f"seed {args.seed}, {args.seconds:g} s: looks {report['looks']}")
    print(f"faults: {report['faults']}")
    print(f"errors beyond a pod's row: {report['errors']}")
    print(f"the longest silences, s: {[round(each, 3) for each in sorted(silences, reverse=True)[:SHOWN]]}")
    print(f"most memory {most:.0f} MiB; the latest honest look came {report['late']:.2f} s after its time")
    late = float(str(report["late"])) > Settings().look_seconds
    return int(bool(report["errors"]) or late or longest > args.max_silence or most > args.max_memory)
