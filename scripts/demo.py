"""The main job in about five minutes: one manifest, real engines, two prompts, a burst, and what the operator did.

    python scripts/demo.py [--manifest examples/demo.yaml] [--output demo-output]

Exit code 0 only if the prompts were answered, the cap was lowered on preemption, replicas rose and fell, and no
request was lost; otherwise the last lines name what failed.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH keeps it off

from demo_fleet import Fleet, FleetError
from demo_page import demo_page
from demo_record import Decision, Record
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paternoster_engine.bench.client import BenchClient, BenchRequest, Outcome, RequestResult, ServerError, drive
from paternoster_engine.bench.reports.html import write_page
from paternoster_engine.bench.reports.report import build_report
from paternoster_engine.bench.requests import workload
from paternoster_engine.bench.requests.prompts import PromptSource, default_text
from paternoster_engine.bench.requests.synthetic import generate

PROMPTS = ("What is the capital of Japan?", "What does a lift operator do? Answer in one sentence.")
BURST_CLIENTS = 24
"""Requests kept in flight during the burst: more than one replica may run at once, so that some always wait."""
BURST_LENGTHS = workload.Limits(max_prompt=160, min_output=96, max_output=192)
BURST_AT_MOST = 150.0
"""Seconds. The burst ends sooner, once the fleet has answered it and held that for CALM seconds."""
CALM = 35.0
READY_WITHIN = 120.0
SETTLED_WITHIN = 120.0
AFTERWARDS = 5.0
"""Seconds of quiet at the end of the record."""

console = Console(highlight=False, soft_wrap=True)


@dataclass
class Demo:
    """What happened, for the verdict and the report."""

    record: Record = field(default_factory=Record)
    answers: dict[str, str] = field(default_factory=dict)
    results: list[RequestResult] = field(default_factory=list)
    burst_begin: float = 0.0
    burst_end: float = 0.0
    failure: str = ""
    """Why the story could not be told to its end, if so."""

    def checks(self) -> dict[str, bool]:
        """What the demo promises, each with whether it came true."""
        replicas = self.record.path("ready")
        first, most, last = replicas[0] if replicas else 0, max(replicas, default=0), replicas[-1] if replicas else 0
        scaled = {decision.action for decision in self.record.decisions if decision.loop == "Replicas"}
        lost = sum(result.outcome is Outcome.LOST for result in self.results)
        return {
            "both prompts were answered": len(self.answers) == len(PROMPTS) and all(self.answers.values()),
            "the cap was lowered on preemption": any(d.lowers_cap_on_preemption for d in self.record.decisions),
            "replicas rose": "Up" in scaled and most > first,
            "replicas fell again": "Down" in scaled and last < most,
            f"no request was lost (of {len(self.results)})": bool(self.results) and lost == 0,
            "the story was told to its end": not self.failure,
        }


def say(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


async def ask(client: BenchClient, prompt: str) -> str:
    """Stream one chat answer to the terminal and return it."""
    console.print(f"> {prompt}", style="cyan", markup=False)
    answer = ""
    async for piece in client.chat(prompt, max_tokens=96, temperature=0):
        console.print(piece, end="", markup=False)
        answer += piece
    console.print("\n")
    return answer.strip()


def burst_requests(prompts: PromptSource, enough: Callable[[], bool]) -> Iterator[BenchRequest]:
    """Requests without end, until ``enough``."""
    rows = [BURST_LENGTHS.clip(row) for row in workload.retime(generate(500), rate=float("inf"), burstiness=1, seed=0)]
    for index, row in enumerate(workload.endless(rows)):
        if enough():
            return
        yield BenchRequest(index, prompts.prompt(index, row.prompt_tokens), row.output_tokens)


def burst_answered(demo: Demo) -> Callable[[], bool]:
    """True once the cap was lowered and two replicas have been ready for CALM seconds."""
    since: float | None = None

    def answered() -> bool:
        nonlocal since
        lowered = any(decision.lowers_cap_on_preemption for decision in demo.record.decisions)
        if since is None and lowered and demo.record.ready >= 2:
            since = time.monotonic()
        return since is not None and time.monotonic() - since >= CALM

    return answered


def show(record: Record, decision: Decision) -> None:
    """One line of the live timeline."""
    color = {"Up": "green", "Down": "red"}.get(decision.action, "yellow")
    change = f"[{color}]{decision.loop:<11} {decision.change:>8}[/{color}]"
    why = escape(f"{decision.reason}: {decision.message}")
    console.print(f"[dim]{decision.time - record.begin:6.1f} s[/dim]  {change}  {why}")


async def tell(demo: Demo, fleet: Fleet) -> None:
    """The story itself."""
    record = demo.record

    async def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            fleet.check()
            if time.monotonic() > deadline:
                raise FleetError(f"{what} did not happen within {seconds:.0f} s: see {fleet.log}")
            await asyncio.sleep(0.5)

    say("1. One manifest becomes a running fleet")
    console.print(f"$ paternoster up -f {fleet.manifest}")
    await fleet.start()
    await wait_for(lambda: record.ready >= 1, READY_WITHIN, "a ready replica")
    console.print(f"ready after {record.seconds:.0f} s, serving at {record.endpoint}/v1")

    async with BenchClient(record.endpoint, sampling={"temperature": 0, "ignore_eos": True}) as client:
        client.model = (await client.models())[0]["id"]
        say("2. Two prompts through the gateway")
        for prompt in PROMPTS:
            demo.answers[prompt] = await ask(client, prompt)

        say(f"3. A burst: {BURST_CLIENTS} requests in flight, on a KV pool that holds about a third of them")
        prompts = PromptSource(await client.tokenize(default_text()))
        demo.burst_begin = demo.burst_end = time.time()
        requests = burst_requests(prompts, burst_answered(demo))
        demo.results = await drive(client, requests, max_concurrency=BURST_CLIENTS, duration=BURST_AT_MOST)
        demo.burst_end = time.time()

    say("4. The load is gone: the fleet settles")
    await wait_for(lambda: record.ready == 1, SETTLED_WITHIN, "going back to one replica")
    await asyncio.sleep(AFTERWARDS)

    say("5. Ctrl-C drains")
    code = await fleet.stop()
    if code != 0:
        raise FleetError(f"paternoster up ended with exit code {code}: see {fleet.log}")
    console.print("the engines finished, and paternoster up ended with exit code 0")


async def run(demo: Demo, fleet: Fleet) -> None:
    follow = asyncio.create_task(fleet.follow(demo.record, lambda decision: show(demo.record, decision)))
    try:
        await tell(demo, fleet)
    except (FleetError, ServerError) as error:
        demo.failure = str(error)
    finally:
        await fleet.stop()
        follow.cancel()
        await asyncio.gather(follow, return_exceptions=True)


def summary(demo: Demo) -> dict[str, Any]:
    """The summary document."""
    settings = {"model_id": demo.record.model, "max_concurrency": BURST_CLIENTS, "num_prompts": len(demo.results)}
    return {
        "checks": demo.checks(),
        "failure": demo.failure,
        "answers": demo.answers,
        "replicas": _ends(demo.record.path("ready"), max),
        "cap": _ends(demo.record.path("cap"), min),
        "highest_preemption_rate": max((sample.preemption_rate for sample in demo.record.samples), default=0.0),
        "decisions": [decision.document(demo.record.begin) for decision in demo.record.decisions],
        "load": build_report(demo.results, duration=demo.burst_end - demo.burst_begin, settings=settings),
    }


def _ends(values: list[int], extreme: Callable[[list[int]], int]) -> list[int]:
    """First, most extreme, last."""
    return [values[0], extreme(values), values[-1]] if values else []


def print_summary(document: dict[str, Any]) -> None:
    load = document["load"]
    table = Table(show_header=False)
    for label, value in (
        ("replicas: first, most, last", " → ".join(map(str, document["replicas"]))),
        ("cap: first, least, last", " → ".join(map(str, document["cap"]))),
        ("highest preemption rate", f"{document['highest_preemption_rate']:.0%}"),
        ("requests completed, refused, lost", f"{load['completed']}, {load['refused']}, {load['lost']}"),
        ("output tokens per second", f"{load['output_throughput']:.1f}"),
        ("time to first token: median, p99", f"{load['median_ttft_ms']:.0f} ms, {load['p99_ttft_ms']:.0f} ms"),
        ("inter-token latency: median, p99", f"{load['median_itl_ms']:.0f} ms, {load['p99_itl_ms']:.0f} ms"),
    ):
        table.add_row(label, value)
    console.print(table)
    for promise, kept in document["checks"].items():
        console.print(f"[green]yes[/green]  {promise}" if kept else f"[red]NO[/red]   {promise}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="The main job, unattended: manifest, engines, burst, decisions, report."
    )
    parser.add_argument("--manifest", type=Path, default=Path("examples/demo.yaml"))
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    options = parser.parse_args()
    demo = Demo()
    began = time.monotonic()
    asyncio.run(run(demo, Fleet(options.manifest, options.output)))
    document = summary(demo)
    say("6. What happened")
    print_summary(document)
    (options.output / "summary.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    write_page(options.output / "report.html", demo_page(document, demo.record, demo.results, demo.burst_begin))
    console.print(f"\nreport: {options.output}/report.html and summary.json, after {time.monotonic() - began:.0f} s")
    if demo.failure:
        console.print(demo.failure, style="red", markup=False)
    return 0 if all(document["checks"].values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
