"""A panel for each constant, as SVG: the share within the objective and the GPU-hours against the constant's value."""

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from control.sensitivity import Point

WIDTH, HEIGHT, COLUMNS = 220, 150, 4
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 26, 26
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Okabe and Ito's palette: colour-blind readers can tell its colours apart."""

LEGEND = "within the objective (solid), GPU-hours over the usual (dashed)"


def figure(points: "Sequence[Point]") -> str:
    """Solid: share within the objective; dashed: GPU-hours over those with the value in the code.

    Both on one axis in percent. The factor is on a logarithmic axis; a dot marks what was simulated.
    """
    scenarios = list(dict.fromkeys(point.scenario for point in points))
    usual = {point.scenario: point.score.gpu_hours for point in points if point.factor == 1}
    shares = [share for point in points for share in _shares(point, usual)]
    low, high = math.floor(min(shares) * 10) / 10, math.ceil(max(shares) * 10) / 10
    panels = [(name, list(group)) for name, group in groupby(points, key=lambda point: point.constant)]
    rows = math.ceil(len(panels) / COLUMNS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDTH}" height="{rows * HEIGHT + 24}" '
        'font-family="sans-serif" font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    parts.append(f'<text x="{LEFT}" y="14">{LEGEND}</text>')
    for i, name in enumerate(scenarios):
        x = (COLUMNS - len(scenarios) / 2) * WIDTH + i * WIDTH / 2
        parts.append(f'<text x="{x:g}" y="14" fill="{COLORS[i]}">{escape(name)}</text>')
    for i, (name, members) in enumerate(panels):
        across, down = i % COLUMNS * WIDTH, i // COLUMNS * HEIGHT + 24
        parts.append(f'<g transform="translate({across},{down})">')
        parts += _axes(name, members, low, high)
        for color, scenario in zip(COLORS, scenarios, strict=False):
            own = sorted((p for p in members if p.scenario == scenario), key=lambda p: p.factor)
            for which, dash in ((0, ""), (1, ' stroke-dasharray="4 3"')):
                at = [(_x(p.factor, members), _y(_shares(p, usual)[which], low, high)) for p in own]
                line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
                parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"{dash}/>')
                parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{color}"/>' for x, y in at]
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _shares(point: "Point", usual: dict[str, float]) -> tuple[float, float]:
    return point.score.slo_attainment, point.score.gpu_hours / usual[point.scenario]


def _x(factor: float, members: "Sequence[Point]") -> float:
    logs = [math.log(point.factor) for point in members]
    span = max(logs) - min(logs) or 1.0
    return LEFT + (math.log(factor) - min(logs)) / span * (WIDTH - LEFT - RIGHT)


def _y(share: float, low: float, high: float) -> float:
    return TOP + (high - share) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _axes(name: str, members: "Sequence[Point]", low: float, high: float) -> list[str]:
    """Frame, title, values of the constant below, percent at the left."""
    parts = [f'<text x="{LEFT}" y="{TOP - 8}" font-weight="bold">{escape(name)}</text>']
    for share in (low, 1.0, high):
        y = _y(share, low, high)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#CCCCCC"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{share:.0%}</text>')
    for factor, value in sorted({(point.factor, point.value) for point in members}):
        x = _x(factor, members)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 13}" text-anchor="middle">{value:.3g}</text>')
    return parts
