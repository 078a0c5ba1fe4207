"""Engines under more load than they can serve, for an hour: none that is only busy may be called hung.

    python benchmarks streams.overload --minutes 60 --engines 4 --gateways 2 --clients 64 --json result.json

Each client sends its next request as soon as it has the last one's answer. Prompts have up to 2,000 words, and a tenth
of the answers follows a JSON schema. An alarm is a gateway that ejects an engine for want of an answer to its probes,
an engine whose own `/health` answers 503, or as many failed liveness probes in a row as restart an engine or a pod.
Exit code 1 where there was an alarm, or an answer was an error.
"""

import asyncio
import random
import re
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
from rich.console import Console
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.load import open_session, running
from harness.results import write_json
from harness.servers import Server
from hostile.shared_fleets import CHAT, KEYS, Fleet, fleet_of_engines
from paternoster_contract.http import paths
from paternoster_operator.local.probe import Probe, Probes, http_check, run_probes
from streams.survive import FORMAT

WORDS = ("lift", "boy", "stops", "never", "floor", "cabin", "paper", "wheel", "door", "night", "story", "chain")
LONGEST_PROMPT = 2000
"""Words; about as many tokens."""
LONGEST_ANSWER = 160
"""Tokens."""
REFUSED = frozenset({429, 503})
"""Statuses of a full fleet: the client sends its request again later."""
LIVENESS = Probe(paths.HEALTH, period_seconds=10, timeout_seconds=5, failure_threshold=6)
"""That of a pod's manifest, by which `paternoster up` restarts engines, too."""
TOKENS = re.compile(r'"completion_tokens":(\d+)')
HEALTH_SECONDS = 1.0
"""Between two reads of an engine's `/health`."""


@dataclass
class Result:
    minutes: float = 0.0
    answers: int = 0
    refused: dict[int, int] = field(default_factory=dict)
    """Number of refusals by status: the client sent the request again."""
    errors: list[str] = field(default_factory=list)
    tokens: int = 0
    slowest_health: float = 0.0
    """Seconds of the slowest answer of an engine's `/health`."""
    alarms: list[str] = field(default_factory=list)


def draw_body(rng: random.Random) -> dict[str, object]:
    """A chat whose prompt is short or, as often, up to :data:`LONGEST_PROMPT` words."""
    words = rng.randint(8, 60) if rng.random() < 0.5 else rng.randint(60, LONGEST_PROMPT)
    text = " ".join(rng.choices(WORDS, k=words))
    body: dict[str, object] = {
        "model": CHAT, "stream": True, "stream_options": {"include_usage": True}, "seed": rng.randrange(1000),
        "max_tokens": rng.randint(8, LONGEST_ANSWER), "messages": [{"role": "user", "content": text}],
    }  # fmt: skip
    if rng.random() < 0.1:
        body["response_format"] = FORMAT
    return body


class Clients:
    """Send one request after another through the gateways, until the end of the run."""

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, result: Result, ends: float) -> None:
        self._fleet = fleet
        self._session = session
        self._result = result
        self._ends = ends
        self._refused: Counter[int] = Counter()

    async def send_requests(self, number: int) -> None:
        rng = random.Random(number)
        gateway = self._fleet.gateways[number % len(self._fleet.gateways)]
        while time.monotonic() < self._ends:
            try:
                await self._send_one(gateway, draw_body(rng))
            except (aiohttp.ClientError, OSError, RuntimeError) as error:
                self._result.errors.append(f"{type(error).__name__}: {error}"[:300])

    async def _send_one(self, gateway: Server, body: dict[str, object]) -> None:
        headers = {"Authorization": f"Bearer {KEYS['quiet']}"}
        while time.monotonic() < self._ends:
            async with self._session.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers) as response:
                text = await response.text()
            if response.status not in REFUSED:
                break
            self._refused[response.status] += 1
            self._result.refused = dict(self._refused)
            await asyncio.sleep(float(response.headers.get("Retry-After", 1)))
        else:
            return
        if response.status != 200 or '"error":{"' in text.replace(" ", ""):
            raise RuntimeError(f"{response.status}: {text[-250:]}")
        self._result.answers += 1
        self._result.tokens += int(TOKENS.findall(text)[-1])


async def watch_health(engine: Server, session: aiohttp.ClientSession, result: Result) -> None:
    """Record each 503 of the engine's own `/health`."""
    while True:
        began = time.monotonic()
        async with session.get(engine.url + paths.HEALTH) as response:
            text = await response.text()
        result.slowest_health = max(result.slowest_health, time.monotonic() - began)
        if response.status != 200:
            result.alarms.append(f"{engine.name}: /health {response.status}: {text}")
        await asyncio.sleep(HEALTH_SECONDS)


async def watch_liveness(engine: Server, session: aiohttp.ClientSession, result: Result) -> None:
    """Record each time that the probes would have the engine restarted."""
    ready = Probe(paths.READY)
    while True:
        why = await run_probes(Probes(ready, ready, LIVENESS), http_check(session, engine.url), lambda _: None)
        result.alarms.append(f"{engine.name}: restarted: {why}")


def find_ejections(gateway: Server) -> list[str]:
    """Lines of the gateway's log, one for each time that it called an engine hung."""
    return [f"{gateway.name}: {line}" for line in gateway.log.read_text().splitlines() if "answers no probe" in line]


async def run(
    folder: Path, minutes: float, num_engines: int, num_gateways: int, clients: int, json_file: Path | None
) -> Result:
    """Load for ``minutes``; the result is written every ten seconds."""
    result = Result()
    with fleet_of_engines(folder, {}, (), num_engines, num_gateways) as fleet:
        async with open_session() as session:
            began = time.monotonic()
            sending = Clients(fleet, session, result, began + 60 * minutes)
            watching = [
                watch(each, session, result) for each in fleet.engines for watch in (watch_health, watch_liveness)
            ]

            def record() -> None:
                result.minutes = round((time.monotonic() - began) / 60, 1)
                seen = [line for gateway in fleet.gateways for line in find_ejections(gateway)]
                write_json(json_file, {**asdict(result), "alarms": [*result.alarms, *seen]})

            async with running(*watching), running(*map(sending.send_requests, range(clients))) as loads:
                seconds = round(60 * minutes)
                with tqdm(total=seconds, unit="s", desc="overload") as bar:
                    while any(not load.done() for load in loads):
                        await asyncio.wait(loads, timeout=10)
                        bar.n = min(seconds, round(time.monotonic() - began))
                        bar.refresh()
                        record()
        result.alarms += [line for gateway in fleet.gateways for line in find_ejections(gateway)]
    return result


def main() -> int:
    parser = RunnerParser(__doc__, json="where the result is written")
    parser.add_number("--minutes", 60.0)
    parser.add_number("--engines", 4)
    parser.add_number("--gateways", 2)
    parser.add_number("--clients", 64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(run(Path(folder), args.minutes, args.engines, args.gateways, args.clients, args.json))
    write_json(args.json, result)
    console = Console()
    console.print(
        f"{result.minutes} minutes: {result.answers} answers, {result.tokens} tokens, refused {result.refused}, "
        f"{len(result.errors)} errors; slowest /health {result.slowest_health:.1f} s; {len(result.alarms)} alarms"
    )
    for line in [*result.alarms[:20], *result.errors[:20]]:
        console.print(line, markup=False)
    return 1 if result.alarms or result.errors else 0
