"""What ``paternoster up`` shows on a terminal."""

from dataclasses import replace
from io import StringIO

from paternoster_contract.cli.console import QuotingConsole
from paternoster_operator.autoscaling.decision import LoopDecision, Reason
from paternoster_operator.cluster.port import Event
from paternoster_operator.terminal.snapshot import Snapshot
from paternoster_operator.terminal.view import SHOWN_EVENTS, render_view

SNAPSHOT = Snapshot(
    namespace="lifts",
    name="ride",
    model="smol",
    desired=3,
    ready=2,
    pending=1,
    draining=0,
    cap=12,
    capacity=16,
    running=20,
    waiting=7,
    held=4,
    preempted=3,
    finished=40,
    preemption_rate=0.075,
    kv_usage=0.91,
    tokens_per_second=321.4,
    fresh=True,
)
HELD = LoopDecision("Replicas", 3, 3, 4, Reason.MAX_REPLICAS, "3 is the most [that may be]")


def shown(events: list[tuple[str, str, Event]]) -> str:
    console = QuotingConsole(width=140, file=StringIO())
    with console.capture() as capture:
        console.print(render_view("http://127.0.0.1:8080", [SNAPSHOT], [("ride", HELD)], events))
    return capture.get()


def test_the_numbers_of_a_fleet_and_why_it_is_as_it_is() -> None:
    lines = shown([]).splitlines()
    (row,) = (line for line in lines if "12/16" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "ride",
        "2/3 (1 coming)",
        "12/16",
        "20",
        "7",
        "4",
        "7.5%",
        "91%",
        "321",
    ]
    assert any("MaxReplicas" in line and "3 is the most [that may be]" in line for line in lines)


def test_a_number_that_engines_do_not_report_has_no_figure() -> None:
    console = QuotingConsole(width=140, file=StringIO())
    blind = replace(SNAPSHOT, preemption_rate=None, kv_usage=None)
    with console.capture() as capture:
        console.print(render_view("http://127.0.0.1:8080", [blind], [], []))
    (row,) = (line for line in capture.get().splitlines() if "12/16" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")][-4:] == ["4", "-", "-", "321"]


def test_the_last_events_with_their_times() -> None:
    events = [
        (f"2026-11-21T10:00:{second:02}Z", "ride", Event("Normal", "ScaledUp", f"replicas [{second}]"))
        for second in range(20)
    ]
    text = shown(events)
    assert "10:00:19" in text
    assert "replicas [19]" in text
    assert text.count("ScaledUp") == SHOWN_EVENTS
