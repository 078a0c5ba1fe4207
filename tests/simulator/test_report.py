"""The page shows what the outcome holds: every series, both latencies against the objective, every decision."""

from typing import Any

import numpy as np
import pytest
from tests.simulator.small_profile import SMALL

from paternoster_load.reports.html import Page, Panel, render_page
from paternoster_operator.autoscaling.observation import Observation
from paternoster_simulator.cost import to_seconds
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.outcome.records import RequestOutcome
from paternoster_simulator.outcome.report import MOST_MARKS, report_page
from paternoster_simulator.policies.policy import Action
from paternoster_simulator.profile import Objective
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.trace import TraceRow

PROFILE = SMALL.model_copy(update={"objective": Objective(ttft_ms=1000, itl_ms=40)})


class Wavering:
    """One replica more and one less, in turn, and says why."""

    period_seconds = 5.0

    def decide(self, observation: Observation) -> Action:
        wanted = 2 if observation.replicas == 1 else 1
        action = "Up" if wanted == 2 else "Down"
        decision: dict[str, Any] = {
            "loop": "Replicas", "action": action, "reason": "Because", "message": f"<b>{wanted}</b>", "applied": True,
        }  # fmt: skip
        return Action(wanted, 7, (decision,))


@pytest.fixture(scope="module")
def outcome() -> SimulationOutcome:
    rows = [TraceRow(i * 0.1, 100, 300 if i < 60 else 1 + i % 3) for i in range(300)]
    return simulate_fleet(PROFILE, rows, Wavering(), start_replicas=1, duration=60)


@pytest.fixture(scope="module")
def page(outcome: SimulationOutcome) -> Page:
    return report_page(outcome, title="A title")


def panels(page: Page) -> dict[str, Panel]:
    return {panel.title: panel for chart in page.charts for panel in chart.panels}


def test_every_series_is_drawn(outcome: SimulationOutcome, page: Page) -> None:
    drawn = [list(series.y) for panel in panels(page).values() for series in panel.series]
    for name in outcome.series.__slots__:
        values = getattr(outcome.series, name)
        assert name == "time" or values in drawn or [100 * value for value in values] in drawn, name
    assert max(outcome.series.preemption_rate) > 0, "there is something to see"


@pytest.mark.parametrize(
    ("title", "name", "limit", "fewest"),
    [("Time to first token", "ttft", 1000, 1), ("Mean time between tokens", "itl", 40, 2)],
)
def test_latency_is_drawn_against_the_objective(
    outcome: SimulationOutcome, page: Page, title: str, name: str, limit: float, fewest: int
) -> None:
    middle, high, objective = panels(page)[title].series
    records = outcome.records
    first = (records.arrival < 5) & (records.outcome == RequestOutcome.FINISHED) & (records.output >= fewest)
    wanted = np.percentile(getattr(records, name)[first] * 1000, (50, 95))
    assert (middle.x[0], middle.y[0], high.y[0]) == (2.5, pytest.approx(wanted[0]), pytest.approx(wanted[1]))
    assert middle.text[0] == f"{np.count_nonzero(first)} requests"
    assert (list(objective.x), list(objective.y)) == ([0, outcome.seconds], [limit, limit])


def test_decisions_are_marked_where_they_were_made(outcome: SimulationOutcome, page: Page) -> None:
    assert len(outcome.decisions) <= MOST_MARKS
    for chart in page.charts:
        assert [(point.x, point.kind) for point in chart.marks] == [
            (decision["time"], decision["action"].lower()) for decision in outcome.decisions
        ]
    text = render_page(page)
    assert "Because: &lt;b&gt;2" in text, "in the hover text"
    assert "<td>&lt;b&gt;2&lt;/b&gt;</td>" in text, "in the table"
    assert "<b>2" not in text


def test_the_summary_has_cost_and_hours(outcome: SimulationOutcome, page: Page) -> None:
    rows = dict(next(table.rows for table in page.tables if table.title == "Summary"))
    assert rows["GPU-hours"] == f"{outcome.gpu_hours:,.3f}"
    assert outcome.gpu_hours == pytest.approx(2 * outcome.replica_hours)
    assert rows["cost"] == f"${outcome.gpu_hours * 1.5:,.2f}"
    assert rows["price of a replica-hour"] == "$3.00"
    assert rows["mean replicas"] == f"{sum_of_lives(outcome):,.2f}"
    assert sum(int(rows[f"requests {name}"].replace(",", "")) for name in
               ("finished", "refused", "held too long", "broken", "unfinished")) == outcome.requests  # fmt: skip


def sum_of_lives(outcome: SimulationOutcome) -> float:
    """Replicas times time, out of the hours that are paid."""
    return outcome.replica_hours / (to_seconds(round(outcome.seconds * 10**12)) / 3600)


def test_nothing_at_all_makes_a_page_too() -> None:
    empty = simulate_fleet(PROFILE, [], Wavering(), start_replicas=0, duration=1)
    assert "A title" in render_page(report_page(empty, title="A title"))
