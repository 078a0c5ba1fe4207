"""The results of a run as charts and tables of a report page."""

from collections.abc import Sequence
from typing import Any

from paternoster_load.reports.html import Chart, Page, Panel, Series, Table
from paternoster_load.reports.report import METRICS, tokens_by_second, told_percentiles
from paternoster_load.results import RequestEnd, RequestResult


def load_page(report: dict[str, Any], results: Sequence[RequestResult]) -> Page:
    """The page of ``paternoster load --html``."""
    begin = min((result.start for result in results), default=0.0)
    return Page(
        title="Load report",
        subtitle=f"{report['model_id']} at {report['base_url']}, {report['date']}",
        headline=list_headline(report),
        charts=[
            Chart("Throughput", [throughput_panel(results), in_flight_panel(results, begin)]),
            Chart("Latency by time of sending", [latency_panel(results, begin), inter_token_panel(results, begin)]),
        ],
        tables=[latency_table(report), totals_table(report)],
    )


def list_headline(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("completed", f"{report['completed']:,}"),
        ("refused with a reason", f"{report['refused']:,}"),
        ("lost", f"{report['lost']:,}"),
        ("output tokens/s", f"{report['output_throughput']:,.1f}"),
        ("median time to first token", _format_duration(report["median_ttft_ms"])),
        ("median inter-token latency", _format_duration(report["median_itl_ms"])),
    ]


def throughput_panel(results: Sequence[RequestResult], offset: float = 0.0) -> Panel:
    """Tokens that arrived in each second; ``offset`` shifts the run on the x axis."""
    counts = tokens_by_second(results)
    seconds = range(max(counts, default=-1) + 1)
    return Panel(
        "Output tokens arriving",
        [Series("tokens/s", [s + offset for s in seconds], [counts.get(s, 0) for s in seconds])],
    )


def in_flight_panel(results: Sequence[RequestResult], begin: float) -> Panel:
    """Requests sent and not yet answered in full."""
    changes = sorted(
        [(result.start - begin, 1) for result in results]
        + [(result.start + result.latency - begin, -1) for result in results]
    )
    times, levels, level = [0.0], [0], 0
    for time, change in changes:
        level += change
        times.append(time)
        levels.append(level)
    return Panel("Requests in flight", [Series("requests", times, levels, shape="hv")])


def latency_panel(results: Sequence[RequestResult], begin: float) -> Panel:
    """Time to first token and end-to-end latency of each request."""
    done = [result for result in results if result.outcome is RequestEnd.COMPLETED]
    text = [f"{r.prompt_tokens} in, {r.output_tokens} out" for r in done]
    x = [result.start - begin for result in done]
    return Panel(
        "Request latency",
        [
            Series("time to first token", x, [result.ttft or 0.0 for result in done], "points", text),
            Series("end to end", x, [result.latency for result in done], "points", text),
        ],
        unit="s",
    )


def inter_token_panel(results: Sequence[RequestResult], begin: float) -> Panel:
    """Mean and longest gap between tokens of each request: a preempted request shows as a long gap."""
    done = [result for result in results if result.itls]
    x = [result.start - begin for result in done]
    return Panel(
        "Gap between tokens",
        [
            Series("mean", x, [1000 * sum(result.itls) / len(result.itls) for result in done], "points"),
            Series("longest", x, [1000 * max(result.itls) for result in done], "points"),
        ],
        unit="ms",
    )


def latency_table(report: dict[str, Any]) -> Table:
    statistics = ("mean", "median", "std", *told_percentiles(report))
    return Table(
        "Latency",
        ["milliseconds", *statistics],
        [
            [title, *(f"{report[f'{statistic}_{key}_ms']:,.1f}" for statistic in statistics)]
            for key, (title, _) in METRICS.items()
        ],
    )


def totals_table(report: dict[str, Any]) -> Table:
    """Every scalar of the report that is not a latency statistic."""
    rows = [
        [key, f"{value:,.2f}" if isinstance(value, float) else str(value)]
        for key, value in report.items()
        if not key.endswith("_ms") and not isinstance(value, dict | list)
    ]
    return Table("Run", ["key", "value"], [*rows, *([f"{n} requests", text] for text, n in report["errors"].items())])


def _format_duration(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.2f} s" if milliseconds >= 1000 else f"{milliseconds:.1f} ms"
