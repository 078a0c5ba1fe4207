"""One self-contained HTML page: headline numbers, time charts with decision marks, latency charts and tables.

The page carries its own JavaScript (plotly), so that it opens without a network and can be sent by mail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from paternoster_contract.cli.quoting import quote_line

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Okabe and Ito's palette, which colour-blind readers can distinguish."""

MARK_COLORS = {"up": "#009E73", "down": "#D55E00", "note": "#6B7280"}

PANEL_HEIGHT = 200
PANEL_GAP = 46
"""Pixels, gap included in the height."""


@dataclass(frozen=True)
class Series:
    """One line (or cloud of points) of a chart; ``text`` shows when the pointer rests on a point."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    shape: str = "linear"
    """``linear``, ``hv`` for a value that holds until the next one, or ``points``."""
    text: Sequence[str] = ()


@dataclass(frozen=True)
class Panel:
    """Series that share an axis."""

    title: str
    series: Sequence[Series]
    unit: str = ""


@dataclass(frozen=True)
class ChartMark:
    """Something that happened at one moment, drawn across every panel of its chart."""

    x: float
    text: str
    kind: str = "note"
    """``up``, ``down`` or ``note``."""


@dataclass(frozen=True)
class Chart:
    """Panels one above the other on a common x axis."""

    title: str
    panels: Sequence[Panel]
    marks: Sequence[ChartMark] = ()
    x_title: str = "seconds"


@dataclass(frozen=True)
class Table:
    """Rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Page:
    """Everything on the page, in reading order."""

    title: str
    subtitle: str
    headline: Sequence[tuple[str, str]] = ()
    """Label and value of the big numbers at the top."""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = field(default=())


def escape_text(text: str) -> str:
    """``text`` as HTML shows it, also where plotly reads tags in it; foreign text is quoted as everywhere."""
    return escape(quote_line(text))


def write_page(path: str | Path, page: Page) -> None:
    """Write ``page`` to ``path``, making its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_page(page), encoding="utf-8")


def render_page(page: Page) -> str:
    """The page as one HTML document."""
    cards = "".join(
        f'<div class="card"><div class="value">{escape_text(value)}</div>'
        f'<div class="label">{escape_text(label)}</div></div>'
        for label, value in page.headline
    )
    style = files("paternoster_load.reports").joinpath("report.css").read_text(encoding="utf-8")
    charts = "".join(
        f"<section><h2>{escape_text(chart.title)}</h2>{_render_chart(chart)}</section>" for chart in page.charts
    )
    tables = "".join(_render_table(table) for table in page.tables)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape_text(page.title)}</title>'
        f"<style>{style}</style><script>{get_plotlyjs()}</script></head>\n<body><main>"
        f'<h1>{escape_text(page.title)}</h1><p class="subtitle">{escape_text(page.subtitle)}</p>'
        f'<div class="cards">{cards}</div>\n{charts}\n{tables}</main></body></html>\n'
    )


def _render_chart(chart: Chart) -> str:
    rows = len(chart.panels)
    figure = make_subplots(
        rows=rows,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=PANEL_GAP / (PANEL_HEIGHT * rows),
        subplot_titles=[
            escape_text(f"{panel.title} ({panel.unit})" if panel.unit else panel.title) for panel in chart.panels
        ],
    )
    for row, panel in enumerate(chart.panels, start=1):
        for color, series in zip(COLORS, panel.series, strict=False):
            figure.add_trace(_build_trace(series, color, legend=f"legend{row if row > 1 else ''}"), row=row, col=1)
        figure.update_yaxes(rangemode="tozero", row=row, col=1)
        top = figure.layout[f"yaxis{row if row > 1 else ''}"].domain[1]
        place = {"orientation": "h", "x": 1, "xanchor": "right", "y": top, "yanchor": "bottom"}
        figure.update_layout({f"legend{row if row > 1 else ''}": place})
    if chart.marks:
        # All at once: add_vline takes time with the square of the lines that are there.
        figure.update_layout(shapes=[_mark_line(chart_mark) for chart_mark in chart.marks])
        figure.add_trace(_mark_points(chart.marks), row=1, col=1)
    figure.update_xaxes(title_text=escape_text(chart.x_title), row=rows, col=1)
    figure.update_annotations(x=0, xanchor="left", font={"size": 13, "color": "#111827"})
    figure.update_layout(
        template="plotly_white",
        height=PANEL_HEIGHT * rows + 90,
        margin={"l": 55, "r": 20, "t": 40, "b": 45},
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#374151"},
        hoverlabel={"align": "left"},
    )
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False}))


def _build_trace(series: Series, color: str, legend: str) -> go.Scatter:
    points = series.shape == "points"
    return go.Scatter(
        name=escape_text(series.name),
        x=list(series.x),
        y=list(series.y),
        mode="markers" if points else "lines",
        line=None if points else {"shape": series.shape, "color": color, "width": 2},
        marker={"color": color, "size": 6, "opacity": 0.65},
        text=[escape_text(text) for text in series.text] or None,
        hovertemplate="%{y:.4g}" + (" · %{text}" if series.text else "") + f"<extra>{escape_text(series.name)}</extra>",
        legend=legend,
    )


def _mark_line(chart_mark: ChartMark) -> dict[str, object]:
    """From the top of the chart to its bottom."""
    return {
        "type": "line",
        "x0": chart_mark.x,
        "x1": chart_mark.x,
        "xref": "x",
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"width": 1, "dash": "dot", "color": MARK_COLORS[chart_mark.kind]},
        "opacity": 0.7,
    }


def _mark_points(marks: Sequence[ChartMark]) -> go.Scatter:
    return go.Scatter(
        x=[chart_mark.x for chart_mark in marks],
        y=[0] * len(marks),
        mode="markers",
        marker={"symbol": "diamond", "size": 10, "color": [MARK_COLORS[chart_mark.kind] for chart_mark in marks]},
        text=[escape_text(chart_mark.text) for chart_mark in marks],
        hovertemplate="%{x:.1f} s: %{text}<extra></extra>",
        showlegend=False,
        cliponaxis=False,
    )


def _render_table(table: Table) -> str:
    head = "".join(f"<th>{escape_text(column)}</th>" for column in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape_text(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return (
        f'<section><h2>{escape_text(table.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></section>\n"
    )
