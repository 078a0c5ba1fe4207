"""What a well-behaved client of a fleet of two feels while others attack it, and while they do not, in one run.

    python benchmarks hostile.neighbours --seconds 60 --rounds 3 --json result.json

Rounds of quiet and of hostile load take turns, so that what else the machine does weighs on both. Both clients have
keys; the hostile one's has limits (docs/keys.md). Attackers have what the machine leaves: theirs is another one.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from hostile.attacks import KEY_VARIABLE
from hostile.fleet import CONTEXT, MODEL, running
from paternoster_contract.access.identity import Identity
from paternoster_engine.bench.requests.prompts import default_text

BENCHMARKS = Path(__file__).resolve().parents[1]
GOAL = 1.5
"""Times the quiet p99 that a well-behaved client may see."""
PERIOD_SECONDS = 0.5
"""Between its requests."""
OUTPUT = 16
"""Tokens of each of its answers."""
KEYS = {"well-behaved": "a" * 32, "hostile": "b" * 32}
ATTACK_SECONDS = 5
"""Until an attack has begun."""


@dataclass
class Felt:
    """Seconds, of the well-behaved client."""

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    failed: int = 0


async def behave(url: str, session: aiohttp.ClientSession, felt: Felt, number: int) -> None:
    """One streamed request whose prompt no cache has."""
    prompt = f"{number}: {default_text()[:60]}"
    body = {"model": MODEL, "prompt": prompt, "max_tokens": OUTPUT, "stream": True, "temperature": 0}
    headers = {"Authorization": f"Bearer {KEYS['well-behaved']}"}
    started = last = time.monotonic()
    first = True
    try:
        post = session.post(f"{url}/v1/completions", json={**body, "ignore_eos": True}, headers=headers)
        async with post as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b'data: {"error"'):
                    raise OSError(line)
                if not line.startswith(b"data: {"):
                    continue
                now = time.monotonic()
                (felt.first if first else felt.between).append(now - (started if first else last))
                first, last = False, now
    except (aiohttp.ClientError, OSError, TimeoutError):
        felt.failed += 1


@contextmanager
def attacked(url: str, args: argparse.Namespace, answers: Counter[str]) -> Iterator[None]:
    """Beside attackers, who tell at the end what ``answers`` they got."""
    command = [
        sys.executable,
        str(BENCHMARKS),
        "hostile.attacks",
        url,
        "--attackers",
        str(args.attackers),
        "--max-model-len",
        str(args.max_model_len),
        "--kinds",
        *args.only,
    ]
    pipe = subprocess.PIPE
    environment = os.environ | {KEY_VARIABLE: KEYS["hostile"]}
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as process:
        try:
            time.sleep(ATTACK_SECONDS)
            yield
            answers.update(json.loads(process.communicate()[0]))
        finally:
            process.kill()


async def measure(folder: Path, args: argparse.Namespace, answers: Counter[str]) -> dict[str, Felt]:
    """What was felt while it was quiet, and beside attackers."""
    felt = {"quiet": Felt(), "hostile": Felt()}
    hostile = Identity(tenant="hostile", max_running=args.max_running, tokens_per_second=args.tokens_per_second)
    tenants = {KEYS["well-behaved"]: Identity(tenant="well-behaved"), KEYS["hostile"]: hostile}
    flags = ("--max-batched-tokens", str(args.max_batched_tokens), "--max-model-len", str(args.max_model_len))
    with running(folder, tenants=tenants, engine_flags=flags) as fleet:
        url, timeout = fleet.gateway.url, aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            for number in range(8):
                await behave(url, session, Felt(), -number)  # the first batches are slow
            for turn in tqdm(range(args.rounds), unit="round"):
                await _behave(url, session, felt["quiet"], args.seconds, 2 * turn)
                with attacked(url, args, answers):
                    await _behave(url, session, felt["hostile"], args.seconds, 2 * turn + 1)
                await asyncio.sleep(10)  # what attackers left behind
    return felt


async def _behave(url: str, session: aiohttp.ClientSession, felt: Felt, seconds: float, turn: int) -> None:
    count = max(1, round(seconds / PERIOD_SECONDS))
    requests = []
    for number in range(count):
        requests.append(asyncio.create_task(behave(url, session, felt, turn * count + number)))
        await asyncio.sleep(PERIOD_SECONDS)
    await asyncio.gather(*requests)


_MEASURES = {"first": "time to first token", "between": "time between tokens"}


def _percentile(seconds: list[float], percent: float) -> float:
    """In milliseconds."""
    return float(np.percentile(seconds, percent)) * 1000 if seconds else float("nan")


def summary(felt: dict[str, Felt]) -> dict[str, dict[str, float]]:
    """Milliseconds by measure, and how many times the quiet one the hostile one is."""
    found: dict[str, dict[str, float]] = {}
    for name in ("first", "between"):
        for percent in (50, 99):
            quiet, hostile = (_percentile(getattr(felt[each], name), percent) for each in ("quiet", "hostile"))
            found[f"{_MEASURES[name]}, p{percent}"] = {"quiet": quiet, "hostile": hostile, "ratio": hostile / quiet}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="quiet ones, and hostile ones (default: %(default)s)")
    parser.add_argument("--attackers", type=int, default=4, help="of each kind (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=[], help="these attacks alone")
    parser.add_argument("--max-running", type=int, default=1, help="of the hostile key; 0: no limit (default: 1)")
    parser.add_argument("--tokens-per-second", type=float, default=0, help="of the hostile key (default: no limit)")
    parser.add_argument("--max-batched-tokens", type=int, default=64, help="of a step (default: %(default)s)")
    parser.add_argument("--max-model-len", type=int, default=CONTEXT, help="of the engines (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the result here")
    args = parser.parse_args()
    answers: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="paternoster-hostile-") as folder:
        felt = asyncio.run(measure(Path(folder), args, answers))
    found = summary(felt)
    table = Table("milliseconds", "quiet", "hostile", "ratio", title=f"a well-behaved client (goal: {GOAL} at p99)")
    for name, row in found.items():
        table.add_row(name, f"{row['quiet']:.0f}", f"{row['hostile']:.0f}", f"{row['ratio']:.2f}")
    for name, each in felt.items():
        table.add_row(f"requests, {name}", str(len(each.first)), f"{each.failed} failed", "")
    Console().print(table)
    Console().print("answers to attackers, by status:", dict(sorted(answers.items())))
    if args.json:
        failed = {f"{name} failed": each.failed for name, each in felt.items()}
        args.json.write_text(json.dumps({**found, **failed, "answers": answers}, indent=1))
    return 0
