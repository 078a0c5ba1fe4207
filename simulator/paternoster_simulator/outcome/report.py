"""An outcome as a page: replicas, cap, queue, memory and latency over one time axis, with the decisions."""

from collections import Counter
from pathlib import Path

import numpy as np

from paternoster_load.reports.html import Chart, ChartMark, Page, Panel, Series, Table, write_page
from paternoster_simulator.outcome.outcome import PERCENTILES, SimulationOutcome
from paternoster_simulator.outcome.records import RequestOutcome
from paternoster_simulator.outcome.timeline import percentiles_by_window

LATENCY_WINDOWS = 240
"""Windows that the whole time is cut into for latencies; more do not show on a screen."""
SHORTEST_WINDOW = 5.0
"""Seconds; in shorter ones a percentile is one request's luck."""
MOST_MARKS = 200
"""Decisions drawn into the charts, the first ones; the table has all."""


def write_report(path: str | Path, outcome: SimulationOutcome, *, title: str = "Simulation") -> None:
    """Write the page of ``paternoster simulate --report``."""
    write_page(path, report_page(outcome, title=title))


def report_page(outcome: SimulationOutcome, *, title: str) -> Page:
    return Page(
        title=title,
        subtitle=f"{outcome.profile.name} ({outcome.profile.source}), {outcome.seconds:,.0f} s of virtual time",
        headline=[
            ("requests", f"{outcome.requests:,}"),
            ("lost", f"{outcome.lost:,}"),
            ("within the SLO", f"{outcome.slo_attainment:.1%}"),
            ("preempted", f"{outcome.preemption_rate:.2%}"),
            (_hours_name(outcome), f"{outcome.gpu_hours:,.2f}"),
            ("cost", f"${outcome.cost:,.2f}"),
        ],
        charts=[
            Chart("Steering", _steering_panels(outcome), _chart_marks(outcome)),
            Chart("What users saw", _latency_panels(outcome), _chart_marks(outcome)),
        ],
        tables=[_latency_table(outcome), _summary_table(outcome), _decision_table(outcome)],
    )


def _steering_panels(outcome: SimulationOutcome) -> list[Panel]:
    s = outcome.series
    return [
        Panel(
            "Replicas",
            [
                Series("wanted", s.time, s.wanted, "hv"),
                Series("ready", s.time, s.ready, "hv"),
                Series("pending", s.time, s.pending, "hv"),
            ],
        ),
        Panel("Live cap, mean of serving replicas", [Series("sequences", s.time, s.cap, "hv")]),
        Panel(
            "Requests in the fleet",
            [
                Series("running", s.time, s.running, "hv"),
                Series("waiting", s.time, s.waiting, "hv"),
                Series("held at the gateway", s.time, s.held, "hv"),
            ],
        ),
        Panel("KV cache in use", [Series("share", s.time, _to_percent(s.kv_usage), "hv")], unit="%"),
        Panel(
            "Preempted of finished requests", [Series("share", s.time, _to_percent(s.preemption_rate), "hv")], unit="%"
        ),
        Panel("Traffic", [Series("requests/s", s.time, s.requests_per_second, "hv")]),
        Panel("Output", [Series("tokens/s", s.time, s.tokens_per_second, "hv")]),
    ]


def _latency_panels(outcome: SimulationOutcome) -> list[Panel]:
    several = outcome.records.output > 1
    return [
        _over_time(outcome, "Time to first token", "ttft", outcome.objective.ttft_ms, np.ones_like(several)),
        _over_time(outcome, "Mean time between tokens", "itl", outcome.objective.itl_ms, several),
    ]


def _over_time(outcome: SimulationOutcome, title: str, name: str, limit: float, counted: np.ndarray) -> Panel:
    """Percentiles by time of arrival, in milliseconds, and the limit they are to stay under."""
    records = outcome.records
    chosen = counted & (records.outcome == RequestOutcome.FINISHED)
    timeline = percentiles_by_window(
        records.arrival[chosen],
        getattr(records, name)[chosen] * 1000,
        width=max(SHORTEST_WINDOW, outcome.seconds / LATENCY_WINDOWS),
        shares=(50, 95),
    )
    text = [f"{count:,} requests" for count in timeline.count]
    return Panel(
        title,
        [
            Series("p50", timeline.time, timeline.shares[50], text=text),
            Series("p95", timeline.time, timeline.shares[95], text=text),
            Series("objective", [0.0, outcome.seconds], [limit, limit]),
        ],
        unit="ms",
    )


def _chart_marks(outcome: SimulationOutcome) -> list[ChartMark]:
    kinds = {"Up": "up", "Down": "down"}
    return [
        ChartMark(
            float(d["time"]), f"{d.get('reason', '')}: {d.get('message', '')}", kinds.get(str(d.get("action")), "note")
        )
        for d in outcome.decisions[:MOST_MARKS]
    ]


def _latency_table(outcome: SimulationOutcome) -> Table:
    columns = ["mean", *(f"p{share}" for share in PERCENTILES)]
    rows = []
    for title, name in (("first token", "ttft"), ("each token", "itl"), ("whole answer", "end_to_end")):
        values = outcome.find_percentiles(name)
        rows.append([title, *("-" if (v := values[c]) is None else f"{v:,.1f}" for c in columns)])
    return Table("Latency", ["milliseconds", *columns], rows)


def _summary_table(outcome: SimulationOutcome) -> Table:
    totals, price = outcome.totals, outcome.cost_per_million_tokens
    outcomes = Counter(outcome.records.outcome.tolist())
    rows = [
        ["virtual time", f"{outcome.seconds:,.0f} s"],
        *([f"requests {each.name.lower().replace('_', ' ')}", f"{outcomes[each]:,}"] for each in RequestOutcome),
        ["prompt tokens", f"{totals.prompt_tokens:,}, {totals.cached_prompt_tokens:,} of them cached"],
        ["tokens generated", f"{totals.generation_tokens:,}"],
        ["preemptions", f"{totals.preemptions:,} of {totals.preempted:,} requests"],
        ["tokens computed again", f"{totals.recomputed_tokens:,} of {totals.computed_tokens:,}"],
        ["replica-hours", f"{outcome.replica_hours:,.3f}"],
        ["mean replicas", f"{outcome.replica_hours * 3600 / outcome.seconds:,.2f}"],
        ["GPUs of a replica", f"{outcome.profile.gpus_per_replica}"],
        [_hours_name(outcome), f"{outcome.gpu_hours:,.3f}"],
        ["price of a replica-hour", f"${outcome.profile.usd_per_replica_hour:,.2f}"],
        ["cost", f"${outcome.cost:,.2f}"],
        ["cost of a million tokens generated", "-" if price is None else f"${price:,.3f}"],
        ["changes of replicas", f"{outcome.scale_events:,}"],
        ["changes of the cap", f"{outcome.cap_events:,}"],
        ["changes of the token budget", f"{outcome.budget_events:,}"],
    ]
    return Table("Summary", ["what", "how much"], rows)


def _decision_table(outcome: SimulationOutcome) -> Table:
    rows = [
        [f"{d['time']:,.0f}", str(d.get("loop", "")), str(d.get("reason", "")), str(d.get("message", ""))]
        for d in outcome.decisions
    ]
    return Table("Decisions", ["second", "loop", "reason", "message"], rows)


def _hours_name(outcome: SimulationOutcome) -> str:
    return "GPU-hours" if outcome.profile.gpus_per_replica else "replica-hours"


def _to_percent(shares: list[float]) -> list[float]:
    return [100 * share for share in shares]
