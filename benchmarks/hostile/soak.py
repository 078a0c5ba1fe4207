"""Mixed load on a fleet of two, with attacks, killed processes, a full disk and a clock that jumps: nothing leaks.

    python benchmarks hostile.soak --seconds 600 --json result.json

Another tenant attacks all the time, in one way after another. Exit code 1 where a call had neither a whole answer nor
an honest error, or something is still held when all is quiet.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, cycle
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import psutil
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.load import open_session
from harness.processes import resident_bytes
from harness.results import write_json
from harness.servers import Server, local_url
from hostile.attackers.attack_rows import ROWS, AttackRow
from hostile.attackers.attacker_process import START_SECONDS, run_attackers
from hostile.calls import Caller, End, Outcomes
from hostile.faults import Clock, full_disk, install_faketime, kill_and_restart, stop_and_continue
from hostile.shared_fleets import CHAT, MODEL, Fleet, fleet_of_engines

CALLERS = 24
STOPPED_SECONDS = 12
"""Twice what a gateway needs to leave a stopped engine."""
QUIET_SECONDS = 90
"""For the end of what had begun."""
MORE_DESCRIPTORS = 10
"""At the end than before the load: a connection or two of a pool."""
GROWTH = 0.5 * 2**20
"""Bytes a second: a quarter of the leak that 1.2 MB prompts once were (840 MB in 7 minutes)."""
ENGINE_ATTACKS = ("single bytes answered", "small chunks answered", "early hints")
"""They need an engine of the attacker's own, which this fleet has not."""
ATTACKS = tuple(row for row in ROWS if row.model == CHAT and row.kind not in ENGINE_ATTACKS)
ATTACK_SECONDS = 25.0
"""Time of each attack, until the next."""
SHORTEST_FOR_SLOPE = 240
"""Seconds of load: before, an engine still grows to what its batches need."""


class Samples:
    """Resident bytes by process, with the time of each look."""

    def __init__(self) -> None:
        self.memory: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def read_memory(self, server: Server) -> None:
        self.memory[server.name].append((time.monotonic(), float(resident_bytes(server.pid))))

    def forget(self, server: Server) -> None:
        """It was started anew."""
        self.memory.pop(server.name, None)


def descriptors(server: Server) -> int:
    return int(psutil.Process(server.pid).num_fds())


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil-Sen: the median of the slopes between any two points of the second half, so that jumps do not move it."""
    half = points[len(points) // 2 :]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(half, 2) if b[0] > a[0]]
    return median(slopes) if slopes else 0.0


@dataclass
class Result:
    """Result of one soak; ``faults`` is empty where all held."""

    seconds: float
    ends: dict[str, dict[str, int]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    """What was done to the processes."""
    attacks: Counter[str] = field(default_factory=Counter)
    """Answers to attackers, by kind and status."""
    held: dict[str, Any] = field(default_factory=dict)
    """When all is quiet."""
    megabytes_per_minute: dict[str, float] = field(default_factory=dict)
    descriptors: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Before and after."""
    faults: list[str] = field(default_factory=list)


async def soak(
    folder: Path,
    seconds: float,
    callers: int = CALLERS,
    pause: float | None = None,
    attacks: Sequence[AttackRow] = ATTACKS,
) -> Result:
    """Load for ``seconds`` from ``callers`` at once; ``pause``: seconds before each fault (default: a tenth of all)."""
    clock = Clock(folder)
    result = Result(seconds)
    if not clock.available:
        print("no clock jumps: install Debian's package libfaketime", file=sys.stderr)
    with fleet_of_engines(folder, clock.env) as fleet:
        outcomes, samples = Outcomes(), Samples()
        async with open_session() as session:
            await Caller(fleet.gateway.url, session, outcomes).short()
        before = {server.name: descriptors(server) for server in fleet.servers}
        pause = seconds / 10 if pause is None else pause
        await _load(fleet, outcomes, samples, clock, callers, pause, attacks, result)
        await _until_quiet(fleet, before, result)
        for (kind, end), count in sorted(outcomes.counts.items()):
            result.ends.setdefault(kind, {})[end.value] = count
        result.faults += [f"lost: {seen}" for seen in outcomes.lost]
        _judge_memory(samples, result)
    return result


async def _load(
    fleet: Fleet,
    outcomes: Outcomes,
    samples: Samples,
    clock: Clock,
    callers: int,
    pause: float,
    attacks: Sequence[AttackRow],
    result: Result,
) -> None:
    ends, done = time.monotonic() + result.seconds, result.done

    async def call(number: int) -> None:
        # A connection of its own each, as clients have.
        async with open_session() as session:
            caller = Caller(fleet.gateway.url, session, outcomes, number)
            while time.monotonic() < ends:
                await caller.any()

    async def break_things() -> None:
        first, second = fleet.engines
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "full disk": partial(full_disk, fleet, 5),
            f"SIGSTOP for {STOPPED_SECONDS} s": partial(stop_and_continue, first, STOPPED_SECONDS),
            "SIGKILL": partial(kill_and_restart, second),
        }
        while time.monotonic() + pause + STOPPED_SECONDS < ends:
            for what, make in faults.items():
                await asyncio.sleep(pause)
                if time.monotonic() + STOPPED_SECONDS > ends:
                    return
                await make()
                samples.forget(second)
                done.append(what)
                if clock.available:
                    offset = ("+2h", "-2h", "+0")[len(done) % 3]
                    clock.jump(offset)
                    done.append(f"clock {offset}")

    async def attack() -> None:
        for row in cycle(attacks):
            if (left := ends - time.monotonic()) < START_SECONDS:
                return
            async with run_attackers([fleet.gateway.url], row, result.attacks):
                await asyncio.sleep(min(ATTACK_SECONDS, left - START_SECONDS))

    async def sample_memory() -> None:
        with tqdm(total=round(result.seconds), unit="s", desc="soak") as bar:
            while (left := ends - time.monotonic()) > 0:
                for server in fleet.servers:
                    with suppress(Exception):  # it is being started anew
                        samples.read_memory(server)
                calls = {end.value: sum(n for (_, e), n in outcomes.counts.items() if e is end) for end in End}
                bar.set_postfix(calls, refresh=False)
                bar.update(round(result.seconds - left) - bar.n)
                await asyncio.sleep(1)

    async with asyncio.TaskGroup() as tasks:
        for number in range(callers):
            tasks.create_task(call(number))
        tasks.create_task(break_things())
        tasks.create_task(attack())
        tasks.create_task(sample_memory())


async def _until_quiet(fleet: Fleet, before: dict[str, int], result: Result) -> None:
    """Wait for the end of what was begun, and say what is held then."""

    def held() -> dict[str, int]:
        found: dict[str, int] = {}
        for engine in fleet.engines:
            stats = _read_json(f"{local_url(engine.admin_port or 0)}/stats")
            found |= {f"{engine.name} {name}": stats[name] for name in ("running", "waiting", "kv_blocks_used")}
        stats = _read_json(f"{fleet.gateway.url}/stats")["models"][MODEL]
        found |= {f"gateway {name}": stats[name] for name in ("in_flight", "held")}
        for server in fleet.servers:
            result.descriptors[server.name] = (before[server.name], descriptors(server))
            more = descriptors(server) - before[server.name]
            found[f"{server.name} descriptors more"] = max(0, more - MORE_DESCRIPTORS)
        return found

    deadline = time.monotonic() + QUIET_SECONDS
    while any((await asyncio.to_thread(held)).values()) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(1)
    result.held = await asyncio.to_thread(held)
    result.faults += [f"still held: {what}: {count}" for what, count in result.held.items() if count]


def _read_json(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=30) as response:
        return dict(json.load(response))


def _judge_memory(samples: Samples, result: Result) -> None:
    for name, points in samples.memory.items():
        if len(points) < 20:
            continue
        growth = slope(points)
        result.megabytes_per_minute[name] = round(growth * 60 / 2**20, 1)
        if growth > GROWTH and result.seconds >= SHORTEST_FOR_SLOPE:
            result.faults.append(f"{name} grows by {growth * 60 / 2**20:.0f} MB a minute")


def show(result: Result, write: Callable[[object], None]) -> None:
    calls = Table("call", *(end.value for end in End), title=f"{result.seconds:g} s of load")
    for kind, ends in result.ends.items():
        calls.add_row(kind, *(str(ends.get(end.value, 0)) for end in End))
    write(calls)
    servers = Table("process", "descriptors before", "after", "MB a minute, second half")
    for name, (first, last) in result.descriptors.items():
        servers.add_row(name, str(first), str(last), str(result.megabytes_per_minute.get(name, "started anew")))
    write(servers)
    write("done to them: " + ", ".join(result.done))
    write("answers to attackers, by status: " + ", ".join(f"{kind}: {n}" for kind, n in sorted(result.attacks.items())))
    write("\n".join(result.faults) or "nothing lost, nothing held")


def main() -> int:
    parser = RunnerParser(__doc__, json="write the result here")
    parser.add_number("--seconds", 600.0, "of load")
    args = parser.parse_args()
    install_faketime()
    with tempfile.TemporaryDirectory(prefix="paternoster-soak-") as folder:
        result = asyncio.run(soak(Path(folder), args.seconds))
    show(result, Console().print)
    write_json(args.json, vars(result))
    return 1 if result.faults else 0
