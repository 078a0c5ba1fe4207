"""Several runs side by side: the same traffic at one pace after the other."""

from collections.abc import Sequence
from typing import Any

from paternoster_load.reports.html import Chart, Page, Panel, Series, Table

Report = dict[str, Any]

COLUMNS = {
    "request_rate": "rate",
    "max_concurrency": "concurrency",
    "request_throughput": "req/s",
    "request_goodput": "goodput/s",
    "output_throughput": "tok/s",
    "median_ttft_ms": "TTFT p50 ms",
    "p99_ttft_ms": "TTFT p99 ms",
    "median_itl_ms": "ITL p50 ms",
    "p99_itl_ms": "ITL p99 ms",
    "failed": "failed",
}
"""Keys of a report -> heads of the table's columns."""


def format_sweep(reports: Sequence[Report]) -> str:
    """One line a run, right-aligned under its heads."""
    heads, rows = _format_cells(reports)
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows)
    )


def sweep_page(reports: Sequence[Report]) -> Page:
    """What throughput costs in latency: the curve that a capacity is read from."""
    first = reports[0]
    heads, rows = _format_cells(reports)
    x = [report["request_throughput"] for report in reports]
    panels = [
        _build_panel("Output throughput", "tokens/s", x, reports, "output_throughput"),
        _build_panel("Time to first token", "ms", x, reports, "median_ttft_ms", "p99_ttft_ms"),
        _build_panel("Inter-token latency", "ms", x, reports, "median_itl_ms", "p99_itl_ms"),
    ]
    if "request_goodput" in first:
        panels.insert(1, _build_panel("Goodput", "requests/s", x, reports, "request_goodput"))
    best = max(reports, key=lambda report: report["output_throughput"])
    return Page(
        title="Load sweep",
        subtitle=f"{first['model_id']} at {first['base_url']}, {first['date']}",
        headline=[
            ("runs", str(len(reports))),
            ("most output tokens/s", f"{best['output_throughput']:,.1f}"),
            ("lost", f"{sum(report['lost'] for report in reports):,}"),
        ],
        charts=[Chart("By throughput", panels, x_title="completed requests per second")],
        tables=[Table("Runs", heads, rows)],
    )


def _build_panel(title: str, unit: str, x: Sequence[float], reports: Sequence[Report], *keys: str) -> Panel:
    order = sorted(range(len(x)), key=lambda i: x[i])
    points = [Series(key, [x[i] for i in order], [reports[i].get(key, 0.0) for i in order]) for key in keys]
    return Panel(title, points, unit)


def _format_cells(reports: Sequence[Report]) -> tuple[list[str], list[list[str]]]:
    keys = [key for key in COLUMNS if any(report.get(key) is not None for report in reports)]
    rows = [[_format_cell(report.get(key)) for key in keys] for report in reports]
    return [COLUMNS[key] for key in keys], rows


def _format_cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
