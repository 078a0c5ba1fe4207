"""Who gets what when there is too much: fair shares (VTC, OSDI'24), classes and deadlines under overload."""

from collections.abc import Sequence
from dataclasses import replace

from paternoster_engine.core.request import FinishReason
from scheduling.experiment import Context
from scheduling.serving import Arrival, Served, percentile, serve
from scheduling.table import Cell, Table
from scheduling.traffic import at_times, merged, poisson
from scheduling.virtual_engine import Machine

SECONDS = 60.0
FLOOD = 10.0
"""Requests a second of the tenant that floods, and of the lower class: more than twice what the machine can do."""
QUIET = 1.0
CAPS = (64, 32, 16)
QUOTA = 800.0
"""Tokens a second: above what the quiet tenant uses, far below what the flood wants."""
DEADLINES = (5.0, 20.0)


def run(context: Context) -> list[Table]:
    return [_fairness(context), _priority(context), _deadlines(context)]


def _streams(context: Context, seed: int = 0) -> tuple[list[Arrival], list[Arrival]]:
    """A request a second and a flood, both of the conversation trace's lengths."""
    quiet = at_times(context.conversation(200, seed=1), poisson(QUIET, SECONDS, seed), seed=1)
    flood = at_times(context.conversation(2000, seed=2), poisson(FLOOD, SECONDS, seed + 1), seed=2)
    return quiet, flood


def _serve(context: Context, name: str, machine: Machine, arrivals: Sequence[Arrival]) -> Served:
    machine = machine.changed(num_blocks=context.plenty)
    return serve(machine, arrivals, on_end=context.progress(f"sharing: {name}", len(arrivals)))


def _capped(context: Context, cap: int, order: str) -> Machine:
    return context.machine.changed(max_num_seqs=cap, order=order)


def _fairness(context: Context) -> Table:
    quiet, flood = _streams(context)
    quiet = [replace(arrival, tenant="quiet") for arrival in quiet]
    both = merged(quiet, [replace(arrival, tenant="flood") for arrival in flood])
    contenders = {"alone": (context.machine, quiet), "fcfs": (context.machine, both)}
    contenders |= {f"fair-share, {cap} at once": (_capped(context, cap, "fair-share"), both) for cap in CAPS}
    quota = _capped(context, CAPS[0], "fair-share").changed(tenant_tokens_per_second=QUOTA)
    contenders[f"fair-share, {CAPS[0]} at once, {QUOTA:g} tokens/s a user"] = quota, both
    rows: list[list[Cell]] = []
    alone: list[float] = []
    for name, (settings, arrivals) in contenders.items():
        served = _serve(context, name, settings, arrivals)
        mine = served.of(lambda a: a.tenant == "quiet")
        p99 = [percentile((r.ttft for r in mine), 99), percentile((r.latency for r in mine), 99)]
        alone = alone or p99
        row: list[Cell] = [name, len(mine), p99[0], f"{p99[0] / alone[0]:.1f}", p99[1], f"{p99[1] / alone[1]:.1f}"]
        rows.append([*row, served.output_tokens_per_second])
    return Table(
        "A tenant that floods",
        f"One tenant sends a request a second, another {FLOOD:g}, for {SECONDS:g} s; the conversation trace's "
        "lengths. Times are the quiet tenant's, tokens everybody's.",
        ["order", "quiet requests", "TTFT p99, s", "over alone", "latency p99, s", "over alone", "output tokens/s"],
        rows,
    )


def _priority(context: Context) -> Table:
    top, low = _streams(context, seed=2)
    top = [replace(arrival, priority=-1) for arrival in top]
    both = merged(top, low)
    contenders = {"unloaded": (_capped(context, CAPS[0], "priority"), top), "fcfs": (context.machine, both)}
    contenders |= {f"priority, {cap} at once": (_capped(context, cap, "priority"), both) for cap in CAPS}
    for cap in CAPS[:2]:
        pausing = _capped(context, cap, "priority").changed(pause_lower_classes=True)
        contenders[f"priority, {cap} at once, lower classes pause"] = pausing, both
    reserved = _capped(context, CAPS[-1], "priority").changed(reserved_slots=4)
    contenders[f"priority, {CAPS[-1]} at once, 4 of them reserved"] = reserved, both
    rows: list[list[Cell]] = []
    unloaded = 0.0
    for name, (settings, arrivals) in contenders.items():
        served = _serve(context, name, settings, arrivals)
        ttfts = [record.ttft for record in served.of(lambda a: a.priority < 0)]
        p99 = percentile(ttfts, 99)
        unloaded = unloaded or p99
        row: list[Cell] = [name, len(ttfts), percentile(ttfts, 50), p99, f"{p99 / unloaded:.2f}"]
        rows.append([*row, served.counters.priority_preemptions, served.output_tokens_per_second])
    return Table(
        "The top class under overload",
        f"A request a second of the top class and {FLOOD:g} of the others, for {SECONDS:g} s. A request of the top "
        "class waits for the step that is under way, and shares the next ones with those that run.",
        [
            "order",
            "top class requests",
            "TTFT p50, s",
            "TTFT p99, s",
            "over unloaded",
            "preempted for it",
            "output tokens/s",
        ],
        rows,
    )


def _deadlines(context: Context) -> Table:
    quiet, flood = _streams(context)
    patient = merged(quiet, flood)
    hurried = [replace(a, deadline_s=DEADLINES[n % len(DEADLINES)]) for n, a in enumerate(patient)]
    rows: list[list[Cell]] = []
    for name, requests in (("none", patient), ("5 s and 20 s", hurried)):
        served = _serve(context, f"deadlines: {name}", context.machine, requests)
        done = served.of(lambda a: True)
        ttfts = [record.ttft for record in done]
        row: list[Cell] = [name, len(requests), len(done), served.ends[FinishReason.TIMEOUT], served.late_prefills]
        rows.append([*row, percentile(ttfts, 50), percentile(ttfts, 99)])
    return Table(
        "Deadlines under overload",
        f"The flood of the tables above; every other request is not worth a prefill after {DEADLINES[0]:g} s, the "
        f"others after {DEADLINES[1]:g} s. A step that began before the deadline may end after it.",
        ["deadlines", "requests", "completed", "expired", "prefill steps of expired requests", "TTFT p50, s", "p99, s"],
        rows,
    )
