"""One constant at a time, put back afterwards, and a figure that a browser can read."""

import math
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from control import sensitivity
from control.contenders import Contender, law
from control.evaluate import Score
from control.outcome.small_multiples import figure
from control.scenarios import Scenario
from control.sensitivity import CONSTANTS, Point, Sensitivity, scaled, table, tuned, value_of
from control.tests.blank_score import BLANK
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning

SCORE = replace(
    BLANK,
    slo_attainment=0.9,
    ttft_attainment=0.9,
    preemption_rate=0.01,
    gpu_hours=2.0,
    scale_events=1,
    cap_events=1,
)


@pytest.mark.parametrize("name", CONSTANTS)
def test_one_constant_is_changed_and_no_other(name: str) -> None:
    changed = tuned(name, scaled(name, 0.5))
    assert [each for each in CONSTANTS if getattr(changed, each) != getattr(DEFAULT_TUNING, each)] == [name]


def test_shares_end_at_the_whole_and_counts_stay_whole() -> None:
    assert scaled("itl_margin", 10.0) == 1.0
    assert scaled("min_token_budget", 0.001) == 1


def test_the_value_in_the_code_is_simulated_once(
    minute: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: list[float] = []

    def law_with(tuning: Tuning = DEFAULT_TUNING) -> Contender:
        values.append(tuning.prior_arrivals)
        return law(tuning)

    def evaluated(*_: object) -> Score:
        return SCORE

    monkeypatch.setattr(sensitivity, "law", law_with)
    monkeypatch.setattr(sensitivity, "evaluate", evaluated)
    runs = Sensitivity(None, tmp_path)
    for constant in ("prior_arrivals", "spare_startups", "prior_arrivals"):
        for factor in (0.5, 1.0):
            runs.point(minute, constant, factor)
    usual = value_of("prior_arrivals")
    assert values == [usual, usual / 2, usual, usual]


def points() -> list[Point]:
    made = []
    for constant in ("prior_arrivals", "spare_startups"):
        for scenario in ("bursts", "step"):
            for factor in (0.5, 1.0, 2.0):
                score = replace(SCORE, slo_attainment=0.9 + 0.02 * math.log2(factor), gpu_hours=2 + factor)
                made.append(Point(scenario, constant, factor, scaled(constant, factor), score))
    return made


def test_the_figure_has_a_panel_for_each_constant() -> None:
    root = ET.fromstring(figure(points()))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}g")) == 2
    lines = root.findall(f"{space}g/{space}polyline")
    assert len(lines) == 2 * 2 * 2
    for line in lines:
        at = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
        assert len(at) == 3
        assert at[0][1] > at[1][1] > at[2][1], "more is further up"


def test_the_table_says_the_values() -> None:
    text = table(points())
    assert "| bursts | `prior_arrivals` | 10 | 90.00% | 3.00 | 1.00% |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--points", "4"), "points is 4: must be odd"),
        (("--constants", "LUCK"), "invalid choice: 'LUCK'"),
        (("--scenarios", "azure"), "scenarios has azure: it needs azure_llm_2023_conv.csv"),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["sensitivity", "--results", str(tmp_path), *arguments])
    with pytest.raises(SystemExit) as stopped:
        sensitivity.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
