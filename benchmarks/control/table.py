"""Rows as Markdown: one table a scenario, and what the law costs beside the best peer."""

from collections.abc import Sequence
from itertools import groupby

from control.contenders import OURS
from control.pareto import front
from control.search import TARGETS, Row

NO_PEERS = (OURS, "without-cap-loop")

HEAD = (
    "policy", "tuned for", "SLO", "TTFT", "ITL", "p99 TTFT, ms", "p99 ITL, ms", "preempted", "recomputed tokens",
    "GPU-hours", "scale events", "front",
)  # fmt: skip


def markdown(rows: Sequence[Row]) -> str:
    """All scenarios in order, each with its table, then the summary."""
    parts = []
    for scenario, members in groupby(rows, key=lambda row: row.scenario):
        judged = list(members)
        parts.append(f"### {scenario}\n\n{scenario_table(judged)}")
        if settings := settings_list(judged):
            parts.append(settings)
    summary = summary_table(rows)
    return "\n\n".join([*parts, *([f"### GPU-hours at equal attainment\n\n{summary}"] if summary else [])]) + "\n"


def scenario_table(rows: Sequence[Row]) -> str:
    """One line a row; ``front`` marks those that no other row of a policy that can be run beats."""
    runnable = [row for row in rows if not row.in_hindsight]
    on_front = {id(row) for row, best in zip(runnable, front([row.test for row in runnable]), strict=True) if best}
    lines = [_line(HEAD), _line(["---"] * 2 + ["---:"] * (len(HEAD) - 3) + ["---"])]
    lines += [_line(_cells(row, on_front=id(row) in on_front)) for row in rows]
    return "\n".join(lines)


def settings_list(rows: Sequence[Row]) -> str:
    """What the search chose, where it chose something."""
    lines = []
    for row in rows:
        if row.choice:
            said = ", ".join(f"`{name}` {value}" for name, value in row.choice.items())
            lines.append(f"- {row.contender}, {row.point}: {said}")
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
        f"{test.recomputed_tokens:,}",
        f"{test.gpu_hours:.2f}",
        str(test.scale_events),
        "yes" if on_front else "",
    ]


def summary_table(rows: Sequence[Row]) -> str:
    """For each scenario and target: the law's hours, and those of the cheapest peer that attains at least as much."""
    head = (
        "scenario",
        "tuned for",
        "law: SLO",
        "law: GPU-hours",
        "best peer",
        "its SLO",
        "its GPU-hours",
        "law / peer",
    )
    lines = []
    for scenario, group in groupby(rows, key=lambda row: row.scenario):
        members = list(group)
        peers = [row for row in members if row.contender not in NO_PEERS and not row.in_hindsight]
        for target in TARGETS:
            ours = next((r for r in members if r.contender == OURS and r.point == f"{target:.0%}"), None)
            if ours is None or not peers:
                continue
            # A target that both reach is reached; above it nobody is better.
            enough = min(target, ours.test.slo_attainment)
            equal = [row for row in peers if row.test.slo_attainment >= enough]
            first = [scenario, ours.point, f"{ours.test.slo_attainment:.2%}", f"{ours.test.gpu_hours:.2f}"]
            if not equal:
                lines.append(_line([*first, "none attains as much", "", "", ""]))
                continue
            peer = min(equal, key=lambda row: row.test.gpu_hours)
            ratio = ours.test.gpu_hours / peer.test.gpu_hours
            named = f"{peer.contender} ({peer.point})"
            lines.append(
                _line([*first, named, f"{peer.test.slo_attainment:.2%}", f"{peer.test.gpu_hours:.2f}", f"{ratio:.2f}"])
            )
    if not lines:
        return ""
    return "\n".join([_line(head), _line(["---"] * 2 + ["---:"] * 2 + ["---"] + ["---:"] * 3), *lines])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
