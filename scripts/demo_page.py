"""The demo's report page: the fleet over time with the operator's decisions, then what the users of the burst saw."""

from collections.abc import Sequence
from typing import Any

from demo_record import Decision, Record

from paternoster_load.reports import charts
from paternoster_load.reports.html import Chart, ChartMark, Page, Panel, Series, Table
from paternoster_load.results import RequestResult


def demo_page(document: dict[str, Any], record: Record, results: Sequence[RequestResult], burst_began: float) -> Page:
    """``document`` is the summary; ``burst_began`` is in seconds since the epoch, as the record's times are."""
    load = document["load"]
    first_request = min((result.start for result in results), default=0.0)
    return Page(
        title="Paternoster: one manifest, real engines, a burst",
        subtitle=f"{record.model}: replicas and max_num_seqs steered together, from preemptions and queues",
        headline=[
            ("replicas: first, most, last", _path(document["replicas"])),
            ("cap: first, least, last", _path(document["cap"])),
            ("highest preemption rate", f"{document['highest_preemption_rate']:.0%}"),
            *charts.list_headline(load),
        ],
        charts=[
            Chart("The fleet", _fleet_panels(record), _marks(record), "seconds since the fleet was started"),
            Chart(
                "The burst, as its users saw it",
                [
                    charts.throughput_panel(results),
                    charts.latency_panel(results, first_request),
                    charts.inter_token_panel(results, first_request),
                ],
                x_title=f"seconds since the burst began, {burst_began - record.begin:.0f} s into the story",
            ),
        ],
        tables=[
            Table(
                "Checks",
                ["promise", "kept"],
                [[name, "yes" if held else "no"] for name, held in document["checks"].items()],
            ),
            Table(
                "Decisions", ["time", "loop", "change", "reason", "why"], [_row(record, d) for d in record.decisions]
            ),
            Table("Answers", ["prompt", "answer"], list(document["answers"].items())),
            charts.latency_table(load),
        ],
    )


def _path(values: Sequence[int]) -> str:
    return " → ".join(map(str, values)) or "none"


def _fleet_panels(record: Record) -> list[Panel]:
    def series(name: str, of: str, scale: float = 1.0) -> Series:
        x = [sample.time - record.begin for sample in record.samples]
        return Series(name, x, [getattr(sample, of) * scale for sample in record.samples], "hv")

    return [
        Panel("Replicas", [series("desired", "desired"), series("ready", "ready")]),
        Panel("Cap of each engine (max_num_seqs)", [series("live cap", "cap")]),
        Panel("Requests in the engines", [series("running", "running"), series("waiting", "waiting")]),
        Panel("Preempted requests", [series("preemption rate", "preemption_rate", 100)], "% of finished"),
        Panel("KV pool in use", [series("KV use", "kv_usage", 100)], "%"),
        Panel("Throughput", [series("tokens/s", "tokens_per_second")], "output tokens/s"),
    ]


def _marks(record: Record) -> list[ChartMark]:
    return [
        ChartMark(d.time - record.begin, f"{d.loop} {d.change}, {d.reason}: {d.message}", d.action.lower())
        for d in record.decisions
        if d.action != "Hold"
    ]


def _row(record: Record, decision: Decision) -> list[str]:
    time = f"{decision.time - record.begin:.1f} s"
    return [time, decision.loop, decision.change, decision.reason, decision.message]
