"""What a well-behaved client of shared fleets feels under each attack, and alone before and after it, in one run.

    python benchmarks hostile.neighbours --only "long prompts" --json result.json

Two tenants have keys and default limits; two gateways stand before a fleet that chats, one that embeds, and two of the
attacker's own. Attackers are a process that has what the machine leaves: theirs is another one. The cap of the chat
engine is set to what this machine computes nearly as fast as one sequence, and the pace of the client to a part of
that. The exit code is 1 where an attack makes p99 more than 1.5 times, and 0.2 s, as long as alone, or a request fails.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import count, cycle
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.load import open_session
from harness.results import write_json
from hostile.attackers.attack_rows import ROWS, AttackRow
from hostile.attackers.attacker_process import run_attackers
from hostile.attackers.claiming_engine import KINDS, measure_claims
from hostile.felt import Felt, compare, passes
from hostile.shared_fleets import CHAT, EMBEDDING, KEYS, SharedFleets, shared_fleets
from paternoster_contract.http import paths
from paternoster_traces.prompts import default_text

SHORTEST_PERIOD_SECONDS = 0.5
"""Between its requests."""
DEMAND = 0.25
"""Part of the engine's time that its requests need at most, so that a fair share has room for them."""
MIN_REQUESTS = 8
"""Measured in each part of a row, however long that takes."""
OUTPUT = 16
"""Tokens of each of its answers."""
CAPS = (16, 12, 8, 6, 4, 3, 2)
FULL_BATCH_TIMES = 1.5
"""Most times that a token takes in a full batch as long as alone, as a fleet with a goal for it would be capped."""
QUIET_SECONDS = 20.0
"""In which engines end what attackers have left behind."""
TIMEOUT_SECONDS = 20.0
"""After which one of its requests has failed."""
ADDRESS = "127.0.0.2"
"""Attackers have another one."""
WARM_UP = 8
"""Requests that are not counted: the first batches are slow."""


class QuietClient:
    """The well-behaved tenant's client: a request each ``period``, to gateways in turn, whose prompts no cache has."""

    period = SHORTEST_PERIOD_SECONDS

    def __init__(self, urls: Sequence[str], session: aiohttp.ClientSession) -> None:
        self._urls = cycle(urls)
        self._session = session
        self._headers = {"Authorization": f"Bearer {KEYS['quiet']}"}
        self._numbers = count()

    async def ask_for(self, model: str, seconds: float, felt: Felt) -> None:
        requests = []
        for _ in range(max(MIN_REQUESTS, round(seconds / self.period))):
            requests.append(asyncio.create_task(self.send_chat(model, felt)))
            await asyncio.sleep(self.period)
        await asyncio.gather(*requests)

    async def send_chat(self, model: str, felt: Felt) -> None:
        """One request."""
        prompt = f"{next(self._numbers)}: {default_text()[:60]}"
        try:
            await (self._embed if model == EMBEDDING else self._stream)(model, prompt, felt)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            felt.refuse(repr(error))

    async def _stream(self, model: str, prompt: str, felt: Felt) -> None:
        body = {"model": model, "prompt": prompt, "max_tokens": OUTPUT, "stream": True, "temperature": 0}
        last, tokens = time.monotonic(), 0
        async with self._post("/v1/completions", {**body, "ignore_eos": True}) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b'data: {"error"'):
                    raise OSError(line)
                if line.startswith(b"data: {"):
                    now = time.monotonic()
                    (felt.between if tokens else felt.first).append(now - last)
                    last, tokens = now, tokens + 1
        if tokens == 0:
            raise OSError("an answer without tokens")

    async def _embed(self, model: str, prompt: str, felt: Felt) -> None:
        begun = time.monotonic()
        async with self._post("/v1/embeddings", {"model": model, "input": prompt}) as response:
            response.raise_for_status()
            await response.read()
        felt.first.append(time.monotonic() - begun)

    def _post(self, path: str, body: dict[str, object]) -> "aiohttp.client._RequestContextManager":
        return self._session.post(next(self._urls) + path, json=body, headers=self._headers)


class Neighbours:
    """One run: fleets, the well-behaved client, and attackers in turn."""

    def __init__(self, fleets: SharedFleets, session: aiohttp.ClientSession, args: argparse.Namespace) -> None:
        self._fleets = fleets
        self._session = session
        self._args = args
        self._urls = [gateway.url for gateway in fleets.gateways]
        self._client = QuietClient(self._urls, session)

    async def measure(self, row: AttackRow) -> dict[str, Any]:
        """One row of the table."""
        alone, attacked, answers = Felt(), Felt(), Counter[str]()
        async with self._token_budget(row):
            await self._client.ask_for(row.model, self._args.seconds / 2, alone)
            async with run_attackers(self._urls, row, answers):
                await self._client.ask_for(row.model, self._args.seconds, attacked)
            await self._await_quiet()
            await self._client.ask_for(row.model, self._args.seconds / 2, alone)
        return {"name": row.name, "alone": alone, "attacked": attacked, "answers": dict(answers)}

    async def warm_up(self) -> None:
        """The first requests of each model that the rows ask for."""
        for row in {row.model: row for row in ROWS}.values():
            for _ in range(WARM_UP):
                await self._client.send_chat(row.model, Felt())

    async def fit_to_machine(self) -> tuple[int, float]:
        """Set the cap of the chat engine, and the client's pace, by what this machine computes; returns both."""
        alone = await self._measure_batch(1)
        for cap in CAPS:
            full = await self._measure_batch(cap)
            if float(np.median(full.between)) <= FULL_BATCH_TIMES * float(np.median(alone.between)):
                break
        await self._patch(CHAT, "live_cap", cap)
        needed = OUTPUT * float(np.median(full.between)) / cap + float(np.median(alone.first))
        self._client.period = max(SHORTEST_PERIOD_SECONDS, needed / DEMAND)
        return cap, self._client.period

    async def _measure_batch(self, size: int) -> Felt:
        """Send ``size`` requests at once, twice, and return what each of them felt."""
        felt = Felt()
        for _ in range(2):
            await asyncio.gather(*(self._client.send_chat(CHAT, felt) for _ in range(size)))
        return felt

    @asynccontextmanager
    async def _token_budget(self, row: AttackRow) -> AsyncIterator[None]:
        """With the row's budget of a step."""
        if row.token_budget is None:
            yield
            return
        before = await self._patch(row.model, "token_budget", row.token_budget)
        try:
            yield
        finally:
            await self._patch(row.model, "token_budget", before)

    async def _patch(self, model: str, name: str, value: int) -> int:
        """Set a live setting of an engine; returns the value before."""
        url = self._admin_url(model) + paths.ADMIN_CONFIG
        headers = {"Authorization": f"Bearer {self._fleets.read_admin_key(model)}"}
        async with self._session.get(url, headers=headers) as response:
            response.raise_for_status()
            before = int((await response.json())[name])
        async with self._session.patch(url, headers=headers, json={name: value}) as response:
            response.raise_for_status()
        return before

    async def _await_quiet(self) -> None:
        """Until engines have ended what attackers left behind, or for so long at most."""
        deadline = time.monotonic() + QUIET_SECONDS
        for model in {row.model for row in ROWS}:
            while time.monotonic() < deadline:
                async with self._session.get(self._admin_url(model) + paths.STATS) as response:
                    stats = await response.json()
                if stats["running"] + stats["waiting"] == 0:
                    break
                await asyncio.sleep(0.2)

    def _admin_url(self, model: str) -> str:
        return f"http://127.0.0.1:{self._fleets.engines[model].admin_port}"


async def measure(folder: Path, args: argparse.Namespace, rows: Sequence[AttackRow]) -> list[dict[str, Any]]:
    """What was felt in each of ``rows``."""
    with shared_fleets(folder) as fleets:
        async with open_session(TIMEOUT_SECONDS, local_addr=(ADDRESS, 0)) as session:
            neighbours = Neighbours(fleets, session, args)
            await neighbours.warm_up()
            cap, period = await neighbours.fit_to_machine()
            Console().print(f"the engine runs {cap} sequences, and the client sends a request each {period:.2f} s")
            return [await neighbours.measure(row) for row in tqdm(rows, unit="attack", disable=None)]


def summarize(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row with its comparisons and whether it passes."""
    summary = []
    for row in found:
        alone, attacked = row["alone"], row["attacked"]
        comparisons = compare(alone, attacked)
        failed = {"refused": attacked.refused, "refused_alone": alone.refused, "refusals": attacked.refusals}
        measures = {name: asdict(each) | {"ratios": each.ratios} for name, each in comparisons.items()}
        summary.append(
            {"name": row["name"], "passes": passes(attacked, comparisons), **failed, "answers": row["answers"]}
            | {"measures": measures}
        )
    return summary


def table(summary: Sequence[dict[str, Any]]) -> Table:
    found = Table(
        *("attack (attackers)", "first token, ms", "times alone", "between tokens, ms", "times alone", "refused", ""),
        title="a well-behaved client: p50 / p99 under attack, and times alone",
    )
    for row in summary:
        cells = []
        for name in ("first", "between"):
            measure: dict[str, Any] = row["measures"].get(name, {})
            cells += [_pair(measure.get("attacked"), 0), _pair(measure.get("ratios"), 2)]
        found.add_row(row["name"], *cells, str(row["refused"]), "" if row["passes"] else "FAILS")
    return found


def _pair(numbers: Sequence[float] | None, digits: int) -> str:
    return "" if numbers is None else " / ".join(f"{number:.{digits}f}" for number in numbers)


def main() -> int:
    parser = RunnerParser(__doc__, json="write the result here")
    parser.add_number("--seconds", 12.0, "of each attack, and alone")
    kinds = [*(row.kind for row in ROWS), *KINDS]
    parser.add_argument("--only", nargs="*", choices=kinds, metavar="NAME", help=f"these alone: {', '.join(kinds)}")
    args = parser.parse_args()
    rows = [row for row in ROWS if args.only is None or row.kind in args.only]
    with tempfile.TemporaryDirectory(prefix="paternoster-hostile-") as folder:
        summary = summarize(asyncio.run(measure(Path(folder), args, rows))) if rows else []
    summary += [measure_claims(kind) for kind in KINDS if args.only is None or kind in args.only]
    console = Console(width=140)
    console.print(table(summary))
    statuses: defaultdict[str, int] = defaultdict(int)
    for row in summary:
        if "share" in row:
            console.print(f"{row['name']}: {row['share']:.0%} of the requests", markup=False)
        for refusal in row["refusals"]:
            console.print(f"{row['name']}: {refusal}", markup=False)
        for name, number in row["answers"].items():
            statuses[name] += number
    console.print("answers to attackers, by status:", dict(statuses))
    write_json(args.json, summary)
    return 0 if all(row["passes"] for row in summary) else 1
