"""Rows as Markdown: one table a scenario, and what the law costs beside the best peer."""

from collections.abc import Sequence
from itertools import groupby

from control.outcome.equal_attainment import HEALTHY, Comparison, compared, mean_ratio, peers_among
from control.pareto import front
from control.search import Row
from harness.results import markdown_table

HEAD = (
    "policy", "tuned for", "SLO", "TTFT", "ITL", "p99 TTFT, ms", "p99 ITL, ms", "preempted", "recomputed tokens",
    "GPU-hours", "scale events", "front",
)  # fmt: skip
SUMMARY_HEAD = (
    "scenario", "tuned for", "law: SLO", "GPU-hours", "preempted", "best peer", "its SLO", "GPU-hours", "preempted",
    "law / peer", f"best with {HEALTHY:.0%} preempted at most", "its SLO", "GPU-hours", "preempted", "law / peer",
)  # fmt: skip
BESIDE = 5
"""Columns that say who is beside the law."""


def markdown(rows: Sequence[Row]) -> str:
    """All scenarios in order, each with its table, then the summary."""
    parts = []
    for scenario, members in groupby(rows, key=lambda row: row.scenario):
        judged = list(members)
        parts.append(f"### {scenario}\n\n{scenario_table(judged)}")
        if settings := settings_list(judged):
            parts.append(settings)
    if comparisons := list(compared(rows)):
        parts.append(f"### GPU-hours at equal attainment\n\n{summary_table(comparisons)}")
        parts.append(f"### Beside one peer in all scenarios\n\n{peers_table(rows, comparisons)}")
    return "\n\n".join(parts) + "\n"


def scenario_table(rows: Sequence[Row]) -> str:
    """One line a row; ``front`` marks those that no other row of a policy that can be run beats."""
    runnable = [row for row in rows if not row.in_hindsight]
    on_front = {id(row) for row, best in zip(runnable, front([row.test for row in runnable]), strict=True) if best}
    rule = ["---"] * 2 + ["---:"] * (len(HEAD) - 3) + ["---"]
    return markdown_table(HEAD, [_cells(row, on_front=id(row) in on_front) for row in rows], rule)


def settings_list(rows: Sequence[Row]) -> str:
    """What the search chose, where it chose something."""
    lines = []
    for row in rows:
        if row.choice:
            settings = ", ".join(f"`{name}` {value}" for name, value in row.choice.items())
            lines.append(f"- {row.contender}, {row.point}: {settings}")
    return "\n".join(lines)


def _cells(row: Row, *, on_front: bool) -> list[str]:
    test = row.test
    shares = (test.slo_attainment, test.ttft_attainment, test.itl_attainment)
    return [
        row.contender,
        row.point,
        *(f"{share:.2%}" for share in shares),
        f"{test.ttft_p99_ms:,.0f}",
        f"{test.itl_p99_ms:.1f}",
        f"{test.preemption_rate:.2%}",
        f"{test.recomputed_tokens:,.0f}",
        f"{test.gpu_hours:.2f}",
        f"{test.scale_events:.1f}",
        "yes" if on_front else "",
    ]


def summary_table(comparisons: Sequence[Comparison]) -> str:
    """The law and the peer to beat, of each scenario and operating point, then the mean of each point."""
    lines: list[list[str]] = []
    for comparison in comparisons:
        ours = comparison.ours
        beside = _beside(comparison.peer, comparison.ratio) + _beside(comparison.healthy, comparison.healthy_ratio)
        lines.append([ours.scenario, comparison.point, *_brief(ours), *beside])
    for point, of_point in _by_point(comparisons).items():
        means = (
            mean_ratio(comparison.ratio for comparison in of_point),
            mean_ratio(comparison.healthy_ratio for comparison in of_point),
        )
        mean_cells = ["" if mean is None else f"{mean:.2f}" for mean in means]
        blank = [""] * (BESIDE - 1)
        lines.append(["geometric mean", point, *[""] * 3, *blank, mean_cells[0], *blank, mean_cells[1]])
    rule = ["---"] * 2 + ["---:"] * 3 + (["---"] + ["---:"] * (BESIDE - 1)) * 2
    return markdown_table(SUMMARY_HEAD, lines, rule)


def peers_table(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> str:
    """The law's hours over those of each peer: the geometric mean, and of how many scenarios; where it attains as much.

    This is for a user who runs one policy for all traffic; the table above picks the best peer of each scenario.
    """
    by_point = _by_point(comparisons)
    lines: list[list[str]] = []
    for name in dict.fromkeys(row.contender for row in peers_among(rows)):
        cells = []
        for of_point in by_point.values():
            ratios = [ratio for comparison in of_point if (ratio := comparison.ratio_to(name)) is not None]
            mean = mean_ratio(ratios)
            cells.append("never attains as much" if mean is None else f"{mean:.2f} in {len(ratios)} of {len(of_point)}")
        lines.append([name, *cells])
    return markdown_table(["peer", *by_point], lines, ["---", *["---:"] * len(by_point)])


def _by_point(comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    points = dict.fromkeys(comparison.point for comparison in comparisons)
    return {point: [comparison for comparison in comparisons if comparison.point == point] for point in points}


def _beside(peer: Row | None, ratio: float | None) -> list[str]:
    if peer is None or ratio is None:
        return ["none attains as much", *[""] * (BESIDE - 1)]
    return [f"{peer.contender} ({peer.point})", *_brief(peer), f"{ratio:.2f}"]


def _brief(row: Row) -> list[str]:
    return [f"{row.test.slo_attainment:.2%}", f"{row.test.gpu_hours:.2f}", f"{row.test.preemption_rate:.2%}"]
