"""An outcome as a page: replicas, cap, queue, memory and latency over one time axis, with the decisions."""

from pathlib import Path

import numpy as np

from paternoster_engine.bench.html import Chart, Mark, Page, Panel, Series, Table, write_page
from paternoster_simulator.outcome import PERCENTILES, Outcome
from paternoster_simulator.records import Fate

MOST_POINTS = 4000
"""Requests drawn, evenly chosen; a page with millions of points does not open."""


def write_report(path: str | Path, outcome: Outcome, *, title: str = "Simulation") -> None:
    """Write the page of ``paternoster simulate --report``."""
    write_page(path, report_page(outcome, title=title))


def report_page(outcome: Outcome, *, title: str) -> Page:
    return Page(
        title=title,
        subtitle=f"{outcome.profile.name} ({outcome.profile.source}), {outcome.seconds:,.0f} s of virtual time",
        headline=[
            ("requests", f"{outcome.requests:,}"),
            ("lost", f"{outcome.lost:,}"),
            ("within the SLO", f"{outcome.slo_attainment:.1%}"),
            ("preempted", f"{outcome.preemption_rate:.2%}"),
            ("GPU-hours" if outcome.profile.gpus_per_replica else "replica-hours", f"{outcome.gpu_hours:,.2f}"),
            ("cost", f"${outcome.cost:,.2f}"),
        ],
        charts=[Chart("Fleet", _panels(outcome), _marks(outcome))],
        tables=[_latencies(outcome), _decisions(outcome)],
    )


def _panels(outcome: Outcome) -> list[Panel]:
    s = outcome.series
    return [
        Panel("Traffic", [Series("requests/s", s.time, s.requests_per_second, "hv")]),
        Panel(
            "Replicas",
            [
                Series("wanted", s.time, s.wanted, "hv"),
                Series("ready", s.time, s.ready, "hv"),
                Series("pending", s.time, s.pending, "hv"),
            ],
        ),
        Panel("Live cap", [Series("mean of replicas", s.time, s.cap, "hv")]),
        Panel(
            "Requests",
            [
                Series("running", s.time, s.running, "hv"),
                Series("waiting", s.time, s.waiting, "hv"),
                Series("held", s.time, s.held, "hv"),
            ],
        ),
        Panel(
            "Shares",
            [
                Series("KV in use", s.time, s.kv_usage, "hv"),
                Series("preempted of finished", s.time, s.preemption_rate, "hv"),
            ],
        ),
        Panel("Output", [Series("tokens/s", s.time, s.tokens_per_second, "hv")]),
        _first_tokens(outcome),
    ]


def _first_tokens(outcome: Outcome) -> Panel:
    done = np.flatnonzero(outcome.records.fate == Fate.FINISHED)
    shown = done[:: max(1, len(done) // MOST_POINTS)]
    arrival, ttft = outcome.records.arrival[shown], outcome.records.ttft[shown]
    return Panel("Time to first token", [Series("request", arrival.tolist(), ttft.tolist(), "points")], unit="s")


def _marks(outcome: Outcome) -> list[Mark]:
    kinds = {"Up": "up", "Down": "down"}
    return [
        Mark(float(d["time"]), str(d.get("message", "")), kinds.get(str(d.get("action")), "note"))
        for d in outcome.decisions
    ]


def _latencies(outcome: Outcome) -> Table:
    columns = ["mean", *(f"p{share}" for share in PERCENTILES)]
    rows = []
    for title, name in (("first token", "ttft"), ("each token", "itl"), ("whole answer", "end_to_end")):
        values = outcome.percentiles(name)
        rows.append([title, *("-" if (v := values[c]) is None else f"{v:,.1f}" for c in columns)])
    return Table("Latency", ["milliseconds", *columns], rows)


def _decisions(outcome: Outcome) -> Table:
    rows = [
        [f"{d['time']:,.0f}", str(d.get("loop", "")), str(d.get("reason", "")), str(d.get("message", ""))]
        for d in outcome.decisions
    ]
    return Table("Decisions", ["second", "loop", "reason", "message"], rows)
