"""The measurement: ``python -m performance.run --fleets 100 --pods 10``, in namespaces of its own.

Beside it nothing else can be in the network namespace, because the control plane has fixed ports.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from performance import audit, budgets, fleets, foreign
from performance.api import Api
from performance.fake_engines import SUMMARY
from performance.process import Cost
from performance.stage import USER, Stage, parse_metrics, read, set_up

METRICS = {
    "applied_seconds": "every Deployment applied, after the first fleet was made (s)",
    "settle_seconds": "every fleet settled, every engine told its cap (s)",
    "operator_cpu_percent": "operator, CPU (% of a core)",
    "operator_rss_mib": "operator, memory (MiB)",
    "operator_rss_growth_mib_per_minute": "operator, growth of memory (MiB/min)",
    "api_requests_per_second": "operator's requests to the API server (1/s)",
    "look_period_seconds": "between two looks at a fleet; 5 is aimed at (s)",
    "change_p50_seconds": "spec changed to Deployment applied, median (s)",
    "change_p99_seconds": "spec changed to Deployment applied, 99th percentile (s)",
    "foreign_objects": "objects of other owners that the operator received, at its start and in the steady state",
    "start_cpu_seconds": "operator, CPU until it leads, before the first fleet (s)",
    "start_rss_mib": "operator, memory then (MiB)",
    "restart_seconds": "operator stopped and started anew, until it has looked at as many fleets as there are (s)",
    "leaderships_lost": "leases that the operator lost; each costs a new start over all fleets",
}
"""What is measured, and what it is called in the table."""
NUM_CHANGES = 50
LOOKS = 'paternoster_operator_reconciles_total{outcome="ok"}'
QUIET_SECONDS = 40
"""Before the steady state: rates in a status rise for the 30 s of their window, and each rise is a write."""
PATIENCE_SECONDS = 500
"""Time for all fleets to settle, and beyond which something is broken and not slow: about twice the budget."""


@dataclass
class Result:
    """``metrics`` has the names of :data:`METRICS`; ``notes`` say where the numbers come from."""

    size: str
    metrics: dict[str, float]
    notes: dict[str, Any]


@dataclass(frozen=True)
class Foreign:
    """Pods of other owners, and how many of them change in a second of the steady state."""

    pods: int
    changes_per_second: float


async def measure(stage: Stage, count: int, pods: int, steady_seconds: float, others: Foreign) -> Result:
    """Everything, in order: settle, steady state, changes."""
    begun = Cost.of(stage.operator.pid)
    async with (
        Api(stage.cluster.kubeconfig) as api,
        fleets.Watched.of(api, fleets.PATH) as resources,
        fleets.Watched.of(api, fleets.DEPLOYMENTS) as deployments,
    ):
        metrics = await settle(stage, api, resources, deployments, count, pods)
        async with changing(api, others):
            steady, notes = await watch_steady(stage, count, steady_seconds)
        change_seconds = await fleets.change_some(api, deployments, min(NUM_CHANGES, count), pods)
        counters = parse_metrics(read(stage.url + "/metrics"))
        metrics["restart_seconds"] = await restart(stage, count)
    latencies = sorted(latency for kind in change_seconds.values() for latency in kind)
    metrics |= steady
    metrics["start_cpu_seconds"], metrics["start_rss_mib"] = begun.cpu_seconds, begun.rss_mib
    metrics["change_p50_seconds"] = statistics.median(latencies)
    metrics["change_p99_seconds"] = percentile(latencies, 99)
    metrics["leaderships_lost"] = stage.operator.log_file.read_text().count("leads no more")
    own = (
        "paternoster_operator_writes_total",
        "paternoster_operator_queue_wait_seconds_",
        "paternoster_operator_looks",
    )
    notes["operator's own counters"] = {
        name.removeprefix("paternoster_operator_"): round(value, 1)
        for name, value in counters.items()
        if name.startswith(own) and "_created" not in name and "_bucket" not in name
    }
    notes["changes, median by kind (s)"] = {
        kind: round(statistics.median(some), 2) for kind, some in change_seconds.items()
    }
    return Result(f"{count}x{pods}", {name: round(value, 2) for name, value in metrics.items()}, notes)


@asynccontextmanager
async def changing(api: Api, others: Foreign) -> AsyncIterator[None]:
    """Pods of other owners change until the end of the block."""
    if not others.pods:
        yield
        return
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(foreign.change(api, others.pods, others.changes_per_second))
        yield
        task.cancel()


async def settle(
    stage: Stage, api: Api, resources: fleets.Watched, deployments: fleets.Watched, count: int, pods: int
) -> dict[str, float]:
    """Make all fleets, and wait until each reports that it is ready and every engine has its cap."""
    begun = time.monotonic()
    making = asyncio.create_task(fleets.create(api, count, pods))

    def explain() -> str:
        unsettled = Counter(fleets.why_unsettled(document, pods) for document in resources.objects.values())
        reasons = [f"{number} fleets: {why}" for why, number in unsettled.most_common() if why is not None]
        return "\n".join([f"{len(resources.objects)} fleets were seen", *reasons, stage.describe_services()])

    async def progress(text: str, done: Callable[[], int]) -> None:
        await fleets.progress(text, count, done, PATIENCE_SECONDS, stage.check_services, explain)

    await progress("applied", lambda: len(deployments.objects))
    applied = time.monotonic() - begun
    await making

    def done() -> int:
        return sum(fleets.settled(document, pods) for document in resources.objects.values())

    await progress("settled", done)
    while (summary := json.loads(read(stage.engines_url + SUMMARY)))["engines"] < count * pods:
        if time.monotonic() > begun + PATIENCE_SECONDS:
            raise TimeoutError(f"not every engine has its cap: {summary}")
        await asyncio.sleep(0.5)
    assert summary["caps"] == [fleets.CAP], f"not every engine has cap {fleets.CAP}: {summary}"
    return {"applied_seconds": applied, "settle_seconds": time.monotonic() - begun}


async def restart(stage: Stage, count: int) -> float:
    """Seconds from the end of the operator until the next one has looked ``count`` times."""
    begun = time.monotonic()
    stage.operator.stop()
    stage.operator.start()
    looks = 0.0
    while looks < count:
        if time.monotonic() > begun + PATIENCE_SECONDS:
            raise TimeoutError(
                f"the operator that was started anew looked {looks:g} times\n{stage.describe_services()}"
            )
        await asyncio.sleep(0.2)
        stage.check_services()
        with suppress(OSError):
            looks = parse_metrics(read(stage.url + "/metrics"))[LOOKS]
    return time.monotonic() - begun


async def watch_steady(stage: Stage, count: int, seconds: float) -> tuple[dict[str, float], dict[str, Any]]:
    """``seconds`` in which no manifest changes."""
    await pass_time("quiet", QUIET_SECONDS)
    cost, log, looks, num_stats, received = _sample(stage)
    await pass_time("steady state", seconds)
    cost_then, log_then, looks_then, asked_then, received_then = _sample(stage)
    elapsed = cost_then.when - cost.when
    requests = audit.requests(stage.audit_log, log, log_then, USER)
    metrics = {
        "operator_cpu_percent": cost_then.cpu_percent_since(cost),
        "operator_rss_mib": cost_then.rss_mib,
        "operator_rss_growth_mib_per_minute": cost_then.growth_since(cost),
        "api_requests_per_second": requests.total() / elapsed,
        "look_period_seconds": count * elapsed / (looks_then - looks),
        # No fleet was there when the operator listed, and no pod of one changes in the steady state.
        "foreign_objects": sum(value for what, value in received.items() if what.endswith("listed"))
        + received_then["Pod events"] - received["Pod events"],
    }  # fmt: skip
    notes = {
        "API requests in the steady state": dict(requests.most_common()),
        "engines asked (1/s)": round((asked_then - num_stats) / elapsed),
        "received until the steady state": {what: value for what, value in received.items() if value},
        "received in the steady state (1/s)": {
            what: round((value - received[what]) / elapsed, 1)
            for what, value in received_then.items()
            if value > received[what]
        },
    }
    return metrics, notes


def _sample(stage: Stage) -> tuple[Cost, int, float, int, dict[str, float]]:
    samples = parse_metrics(read(stage.url + "/metrics"))
    looks = samples[LOOKS]
    num_stats = json.loads(read(stage.engines_url + SUMMARY))["stats"]
    received = foreign.count_received(samples)
    return Cost.of(stage.operator.pid), stage.audit_log.stat().st_size, looks, num_stats, received


async def pass_time(text: str, seconds: float) -> None:
    with tqdm(total=round(seconds), desc=text, unit="s") as bar:
        for _ in range(round(seconds)):
            await asyncio.sleep(1)
            bar.update()


def percentile(ordered: list[float], share: int) -> float:
    """The smallest value that ``share`` percent are not above."""
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def show(result: Result, most: Mapping[str, float]) -> None:
    """The table, with the budgets beside what was measured."""
    table = Table("measure", "value", "budget", title=f"{result.size}: fleets x engines")
    for name, text in METRICS.items():
        table.add_row(text, f"{result.metrics[name]:g}", f"{most[name]:g}" if name in most else "")
    console = Console(width=120)
    console.print(table)
    for text, note in result.notes.items():
        console.print(f"{text}: {note}", highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=100)
    parser.add_argument("--pods", type=int, default=10, help="engines of each fleet")
    parser.add_argument("--steady", type=float, default=60, help="seconds of steady state that are measured")
    parser.add_argument("--foreign-pods", type=int, default=5000, help="pods of other owners")
    parser.add_argument("--foreign-changes", type=float, default=20, help="of them that change in a second")
    parser.add_argument(
        "--operator",
        default=str(Path(sys.executable).with_name("paternoster")),
        help="command that is measured; a profiler may stand before it",
    )
    parser.add_argument("--result", type=Path, help="file for the measured values, as JSON")
    args = parser.parse_args()
    others = Foreign(args.foreign_pods, args.foreign_changes)
    with set_up(args.fleets, args.pods, args.operator, others.pods) as stage:
        result = asyncio.run(measure(stage, args.fleets, args.pods, args.steady, others))
    show(result, budgets.load(result.size))
    if args.result is not None:
        args.result.write_text(json.dumps({"size": result.size, "metrics": result.metrics, "notes": result.notes}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
