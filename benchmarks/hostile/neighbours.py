"""What a well-behaved client of a fleet of two feels while others attack it, and while they do not, in one run.

    PYTHONPATH=benchmarks python -m hostile.neighbours --seconds 60 --rounds 3 --json result.json

Rounds of quiet and of hostile load take turns, so that what else the machine does weighs on both.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from hostile.fleet import CONTEXT, MODEL, running
from paternoster_engine.bench.prompts import default_text

GOAL = 1.5
"""Times the quiet p99 that a well-behaved client may see."""
PERIOD_SECONDS = 0.5
"""Between its requests."""
OUTPUT = 16
"""Tokens of each of its answers."""


@dataclass
class Felt:
    """Seconds, of the well-behaved client."""

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    failed: int = 0


class Neighbours:
    """A well-behaved client and its hostile neighbours, before one gateway."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session
        self._text = default_text()
        self._host, self._port = url.removeprefix("http://").split(":")
        self.attacks: dict[str, Callable[[], Awaitable[None]]] = {
            "long prompts": self._long_prompt,
            "slow readers": self._slow_reader,
            "header floods": self._header_flood,
            "one tenant's flood": self._flood,
        }

    async def behaves(self, felt: Felt, number: int) -> None:
        """One streamed request whose prompt no cache has."""
        body = self._body(f"{number}: {self._text[:60]}", OUTPUT, stream=True, user="well-behaved")
        started = last = time.monotonic()
        first = True
        try:
            async with self._post(body) as response:
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

    async def _long_prompt(self) -> None:
        async with self._post(self._body(self._text * 80, 8)) as response:  # 8 MB: refused
            await response.read()
        async with self._post(self._body(self._text[: 2 * CONTEXT], 8)) as response:
            await response.read()

    async def _slow_reader(self) -> None:
        async with self._post(self._body("up", CONTEXT // 2, stream=True)) as response:
            while await response.content.read(64):  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    async def _header_flood(self) -> None:
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        try:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
            for _ in range(50):
                writer.write(b"X-Flood: " + b"a" * 65_536 + b"\r\n")
                await writer.drain()
            await reader.read(100)
        finally:
            writer.close()

    async def _flood(self) -> None:
        async with self._post(self._body("up", 32)) as response:
            await response.read()
            if response.status != 200:
                await asyncio.sleep(0.05)

    def _body(self, prompt: str, max_tokens: int, stream: bool = False, user: str = "hostile") -> bytes:
        fields = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "stream": stream, "user": user}
        return json.dumps({**fields, "temperature": 0, "ignore_eos": True}).encode()

    def _post(self, body: bytes) -> "aiohttp.client._RequestContextManager":
        headers = {"Content-Type": "application/json"}
        return self._session.post(f"{self._url}/v1/completions", data=body, headers=headers)


async def measure(folder: Path, seconds: float, rounds: int, attackers: int, only: list[str]) -> dict[str, Felt]:
    """What was felt while it was quiet, and beside attackers: so many of each kind in ``only``, or of all."""
    felt = {"quiet": Felt(), "hostile": Felt()}
    with running(folder) as fleet:
        timeout, connector = aiohttp.ClientTimeout(total=120), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            neighbours = Neighbours(fleet.gateway.url, session)
            for number in range(4):
                await neighbours.behaves(Felt(), number)  # the first batches are slow
            with tqdm(total=2 * rounds, unit="round") as bar:
                for turn in range(2 * rounds):
                    name = ("quiet", "hostile")[turn % 2]
                    kinds = (only or list(neighbours.attacks)) * attackers if name == "hostile" else []
                    attacks = [asyncio.create_task(_again(neighbours.attacks[kind])) for kind in kinds]
                    await asyncio.sleep(2 if attacks else 0)
                    await _behave(neighbours, felt[name], seconds, turn)
                    for attack in attacks:
                        attack.cancel()
                    await asyncio.gather(*attacks, return_exceptions=True)
                    await asyncio.sleep(3)
                    bar.update()
    return felt


async def _again(attack: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            await attack()
        await asyncio.sleep(0.01)


async def _behave(neighbours: Neighbours, felt: Felt, seconds: float, turn: int) -> None:
    count = max(1, round(seconds / PERIOD_SECONDS))
    requests = []
    for number in range(count):
        requests.append(asyncio.create_task(neighbours.behaves(felt, turn * count + number)))
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
    parser.add_argument("--json", type=Path, help="write the result here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paternoster-hostile-") as folder:
        felt = asyncio.run(measure(Path(folder), args.seconds, args.rounds, args.attackers, args.only))
    found = summary(felt)
    table = Table("milliseconds", "quiet", "hostile", "ratio", title=f"a well-behaved client (goal: {GOAL} at p99)")
    for name, row in found.items():
        table.add_row(name, f"{row['quiet']:.0f}", f"{row['hostile']:.0f}", f"{row['ratio']:.2f}")
    for name, each in felt.items():
        table.add_row(f"requests, {name}", str(len(each.first)), f"{each.failed} failed", "")
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(found | {f"{n} failed": f.failed for n, f in felt.items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
