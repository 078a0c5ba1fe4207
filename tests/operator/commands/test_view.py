"""What ``paternoster up`` shows on a terminal."""

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest

from paternoster_contract.cli.console import QuotingConsole
from paternoster_contract.labels import API_VERSION, KIND
from paternoster_contract.stats import Unreported
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.control_loop import LoopState, LoopStates
from paternoster_operator.autoscaling.decision import LIVE_CAP, REPLICAS, LoopDecision, Reason
from paternoster_operator.autoscaling.loops.limits import ReplicaState
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.cluster.port import Event, Key
from paternoster_operator.fleet import Fleet
from paternoster_operator.observed import Observed
from paternoster_operator.plan.plan import FleetMemory
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
NUMBERS = ("running", "waiting", "preempted", "finished", "preemption_rate", "kv_usage", "tokens_per_second")
"""Numbers of engines."""
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
    nothing = dict.fromkeys(("running", "waiting", "preemption_rate", "kv_usage", "tokens_per_second"))
    blind = replace(SNAPSHOT, **nothing)
    with console.capture() as capture:
        console.print(render_view("http://127.0.0.1:8080", [blind], [], []))
    (row,) = (line for line in capture.get().splitlines() if "12/16" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")][-6:] == ["-", "-", "4", "-", "-", "-"]


@pytest.mark.parametrize(
    ("signals", "lacking"),
    [
        ({"ready": 1, "fresh": True}, set()),
        ({"ready": 1, "stale_pods": ("a",)}, {*NUMBERS}),
        ({"ready": 1, "unreported": (Unreported.REQUESTS,)}, {"finished"}),
        ({"ready": 1, "unreported": (Unreported.PREEMPTIONS,)}, {"preempted", "preemption_rate"}),
        ({"ready": 1, "unreported": (Unreported.KV_BLOCKS,)}, {"kv_usage"}),
        ({"ready": 0}, set()),
    ],
)
def test_the_record_has_no_number_that_engines_do_not_report(signals: dict[str, Any], lacking: set[str]) -> None:
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "a"},
        "spec": {"model": {"source": "file:///m"}},
    }
    states = LoopStates({LIVE_CAP: LoopState(target=12), REPLICAS: ReplicaState(target=2, since=0.0)})
    observed = replace(Observed(None, ()), signals=Signals(**signals))
    fleet = Fleet(LLMDeployment.model_validate(document), FleetMemory(states), observed)
    record = Snapshot.from_fleet(Key("default", "a"), fleet).to_document([])
    assert {name for name in NUMBERS if record[name] is None} == lacking


def test_the_last_events_with_their_times() -> None:
    events = [
        (f"2026-11-21T10:00:{second:02}Z", "ride", Event("Normal", "ScaledUp", f"replicas [{second}]"))
        for second in range(20)
    ]
    text = shown(events)
    assert "10:00:19" in text
    assert "replicas [19]" in text
    assert text.count("ScaledUp") == SHOWN_EVENTS
