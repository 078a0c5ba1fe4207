"""What requests without anything special get from engines of several commits, in turns.

    python benchmarks engine.commits cb8fc99 "HEAD --speculative grammar" --rounds 5 --json result.json

Each commit is checked out into a folder of its own and served by this environment's packages, all at once; one turn
after another sends the same load to each. Ratios are to the first commit, round by round. The commits' requirements
must be met by this environment.
"""

import argparse
import asyncio
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.load import open_client
from harness.results import write_json
from harness.servers import served
from paternoster_engine.bench.machine import cpu_name
from paternoster_load.client import BenchClient, drive_load
from paternoster_load.results import BenchRequest, RequestEnd

PACKAGES = ("common", "operator", "engine", "kernels", "gateway", "simulator")
ROOT = Path(__file__).resolve().parents[2]
SERVE = """\
import argparse
from paternoster_engine.commands import serve
parser = argparse.ArgumentParser()
serve.add_arguments(parser)
raise SystemExit(serve.run(parser.parse_args()))
"""
"""The subcommand without the console script, whose module is this environment's and need not exist in the commit."""


@dataclass(frozen=True)
class Turn:
    """What one round of requests got."""

    tokens_per_second: float
    between_p50: float
    """Seconds between two chunks of tokens."""
    between_p99: float
    first_p50: float
    """Seconds to the first token."""


@contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Path]:
    """A work tree of ``commit``; raises ``subprocess.CalledProcessError`` where there is none."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


async def turn(client: BenchClient, requests: Sequence[BenchRequest], users: int) -> Turn:
    """``users`` send the requests, each its next when its last is answered; raises ``RuntimeError`` where one fails."""
    started = time.perf_counter()
    results = await drive_load(client, requests, max_concurrency=users)
    seconds = time.perf_counter() - started
    if failed := [one.error for one in results if one.outcome is not RequestEnd.COMPLETED]:
        raise RuntimeError(failed[0])
    p50, p99 = np.percentile([gap for one in results for gap in one.itls], (50, 99))
    first = statistics.median(one.ttft or 0.0 for one in results)
    return Turn(sum(one.output_tokens for one in results) / seconds, float(p50), float(p99), first)


async def measure(urls: Sequence[str], args: argparse.Namespace) -> list[list[Turn]]:
    """The turns of each address, after one that is not counted."""
    turns: list[list[Turn]] = [[] for _ in urls]
    async with AsyncExitStack() as stack:
        opened = [open_client(url, temperature=args.temperature) for url in urls]
        clients, sources = zip(*[await stack.enter_async_context(each) for each in opened], strict=True)
        prompts = sources[0]
        for number in tqdm(range(args.rounds + 1), unit="round", disable=None):
            numbers = range(number * args.requests, (number + 1) * args.requests)
            load = [BenchRequest(n, prompts.make_prompt(n, args.prompt), args.answer) for n in numbers]
            order = range(len(urls))
            for i in order if number % 2 else reversed(order):
                turns[i].append(await turn(clients[i], load, args.users))
    return [each[1:] for each in turns]


def main() -> int:
    parser = RunnerParser(__doc__, json="write every turn")
    parser.add_argument("commits", nargs="+", metavar="COMMIT", help="with flags of paternoster serve behind it")
    parser.add_number("--users", 16, "requests at once")
    parser.add_number("--requests", 64, "of a turn")
    parser.add_number("--prompt", 128, "tokens of each prompt")
    parser.add_number("--answer", 64, "tokens of each answer", least=2)
    parser.add_number("--temperature", 1.0)
    parser.add_number("--rounds", 5, "turns of each commit")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        urls = []
        for i, (commit, *flags) in enumerate(map(shlex.split, args.commits)):
            tree = stack.enter_context(checkout(commit, Path(folder, str(i))))
            packages = {"PYTHONPATH": os.pathsep.join(str(tree / package) for package in PACKAGES)}
            program = (sys.executable, "-c", SERVE)
            urls.append(stack.enter_context(served(*flags, program=program, env=packages)).url)
        turns = asyncio.run(measure(urls, args))
    names = [each.name for each in fields(Turn)]
    table = Table("median (of the first: median, least, most)", *names)
    for commit, each in zip(args.commits, turns, strict=True):
        cells = []
        for name in names:
            here, first = ([getattr(one, name) for one in of] for of in (each, turns[0]))
            ratios = [a / b for a, b in zip(here, first, strict=True)]
            found = (statistics.median(ratios), min(ratios), max(ratios))
            cells.append(f"{statistics.median(here):.4g} ({', '.join(f'{ratio:.3f}' for ratio in found)})")
        table.add_row(commit, *cells)
    Console(width=160).print(table)
    print(cpu_name())
    write_json(args.json, {"processor": cpu_name(), "turns": dict(zip(args.commits, turns, strict=True))})
    return 0
