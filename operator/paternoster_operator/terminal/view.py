"""The live view of ``paternoster up``."""

from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from paternoster_operator.autoscaling.decision import LoopDecision
from paternoster_operator.cluster.port import Event
from paternoster_operator.terminal.snapshot import Snapshot

SHOWN_EVENTS = 8


def render_view(
    endpoint: str,
    snapshots: Sequence[Snapshot],
    reasons: Iterable[tuple[str, LoopDecision]],
    events: Iterable[tuple[str, str, Event]],
) -> Group:
    """``reasons``: (LLMDeployment's name, a loop's last decision). ``events``: (time, name, event), oldest first."""
    table = Table(title=f"serving at {endpoint}", title_justify="left", expand=True)
    for column in ("NAME", "REPLICAS", "SEQS", "RUNNING", "WAITING", "HELD", "PREEMPTED", "KV", "TOK/S"):
        table.add_column(column, justify="left" if column == "NAME" else "right")
    for snapshot in snapshots:
        table.add_row(*_snapshot_cells(snapshot))
    now = Table.grid(padding=(0, 2))
    for name, made in reasons:
        now.add_row(name, made.loop, Text(made.reason.value, style="cyan"), made.message)
    story = Table.grid(padding=(0, 2))
    for when, name, event in list(events)[-SHOWN_EVENTS:]:
        story.add_row(
            Text(when[11:19], style="dim"),
            name,
            Text(event.reason, style="yellow" if event.type == "Warning" else "green"),
            event.message,
        )
    return Group(table, now, Text(), story, Text("Ctrl-C drains and ends", style="dim"))


def _snapshot_cells(snapshot: Snapshot) -> list[str]:
    moving = [
        f"{count} {word}" for count, word in ((snapshot.pending, "coming"), (snapshot.draining, "draining")) if count
    ]
    return [
        snapshot.name,
        f"{snapshot.ready}/{snapshot.desired}" + (f" ({', '.join(moving)})" if moving else ""),
        f"{snapshot.cap}/{snapshot.capacity}" if snapshot.capacity else str(snapshot.cap),
        _number_cell(snapshot.running, "d"),
        _number_cell(snapshot.waiting, "d"),
        str(snapshot.held),
        _number_cell(snapshot.preemption_rate, ".1%"),
        _number_cell(snapshot.kv_usage, ".0%"),
        _number_cell(snapshot.tokens_per_second, ".0f"),
    ]


def _number_cell(number: float | None, form: str) -> str:
    return "-" if number is None else format(number, form)
