"""The search for the cheapest schedule: what it gives is enough, in bounds, and never dearer than standing still."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control import foresight
from control.contenders import Choice
from control.evaluate import Score, evaluate
from control.foresight import CONTENDER, SLOT_SECONDS, Foresight, Schedule, ScheduledPolicy
from control.scenarios import Scenario
from control.tests.blank_score import BLANK
from paternoster_operator.autoscaling.observation import Observation

HIGHEST, FREE = 9, 2


def world(wanted: list[int], schedules: list[Schedule]) -> Callable[[Schedule], Score]:
    """Users of a slot are served by as many of its replicas as it wants; hours are those of all in the schedule."""

    def score(schedule: Schedule) -> Score:
        schedules.append(schedule)
        served = sum(min(have, want) for have, want in zip(schedule[FREE:], wanted, strict=True))
        return replace(BLANK, slo_attainment=served / sum(wanted), gpu_hours=float(sum(schedule[FREE:])))

    return score


@given(
    wanted=st.lists(st.integers(1, 12), min_size=1, max_size=20),
    target=st.sampled_from([0.5, 0.95, 1.0]),
    seed=st.integers(0, 5),
)
def test_enough_in_bounds_and_no_dearer_than_standing_still(wanted: list[int], target: float, seed: int) -> None:
    schedules: list[Schedule] = []
    score = world(wanted, schedules)
    search = Foresight(score, target, 1, HIGHEST, len(wanted) + FREE, FREE, 20, seed)
    found = list(search.best())
    fixed = [score((size,) * (len(wanted) + FREE)) for size in range(1, HIGHEST + 1)]
    enough = [one.gpu_hours for one in fixed if one.slo_attainment >= target]
    if not enough:
        assert found == []
        return
    hours = [one.gpu_hours for _, one in found]
    assert hours[0] == min(enough)
    assert hours == sorted(hours, reverse=True)
    assert all(one.slo_attainment >= target for _, one in found)
    assert all(1 <= replicas <= HIGHEST for schedule in schedules for replicas in schedule)
    assert len({schedule[:FREE] for schedule, _ in found}) == 1, "the warm-up is given"
    again = Foresight(score, target, 1, HIGHEST, len(wanted) + FREE, FREE, 20, seed)
    assert list(again.best()) == found


def test_a_peak_is_followed() -> None:
    wanted = [2] * 8 + [8] * 4 + [2] * 8
    *_, (schedule, _) = Foresight(world(wanted, []), 1.0, 1, HIGHEST, len(wanted) + FREE, FREE, 600).best()
    assert list(schedule[FREE:]) == wanted


def test_a_schedule_is_asked_for_slot_by_slot(observe: Callable[..., Observation]) -> None:
    policy = ScheduledPolicy([1, 3, 2])
    times = [0.0, SLOT_SECONDS - 1, SLOT_SECONDS, 2 * SLOT_SECONDS, 9 * SLOT_SECONDS]
    assert [policy.decide(observe(time, [])).replicas for time in times] == [1, 1, 3, 2, 2]


def test_a_schedule_steers_a_real_fleet(minute: Scenario) -> None:
    assert hours_of(minute, {"schedule": (2,)}) < hours_of(minute, {"schedule": (3,)})


def hours_of(scenario: Scenario, choice: Choice) -> float:
    return evaluate(scenario, "test", CONTENDER, choice, None).gpu_hours


def test_the_command_finds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minute: Scenario) -> None:
    monkeypatch.setitem(foresight.SCENARIOS, "bursts", minute)
    schedule, score = foresight.search("bursts", 90, 3, None, tmp_path) or pytest.fail("two replicas are enough")
    assert score.slo_attainment >= 0.9
    num_files = len(list(tmp_path.iterdir()))
    assert foresight.search("bursts", 90, 3, None, tmp_path) == (schedule, score)
    assert len(list(tmp_path.iterdir())) == num_files, "what was evaluated is not run again"
    assert foresight.cells("bursts", 90, None) == ("bursts", "90 %", "not with all replicas", "", "", "")


def test_the_command_refuses_what_makes_no_sense(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for arguments, message in (
        (["--evaluations", "0"], "--evaluations: is 0: must be at least 1"),
        (["--targets", "120"], "--targets: is 120: must be 1 to 100"),
        (["--scenarios", "azure"], "scenarios has azure: it needs azure_llm_2023_conv.csv"),
    ):
        monkeypatch.setattr(sys, "argv", ["foresight", *arguments])
        with pytest.raises(SystemExit):
            foresight.main()
        assert message in capsys.readouterr().err
