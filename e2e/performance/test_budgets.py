"""The checker of budgets, and the file with those of the scale test."""

import math
from pathlib import Path

import pytest

from performance.budgets import exceeded, load
from performance.run import METRICS


def test_a_value_at_its_budget_is_within_it() -> None:
    assert exceeded({"seconds": 2.0, "other": 9.0}, {"seconds": 2.0}) == []


def test_a_value_above_its_budget_is_named_with_both_numbers() -> None:
    assert exceeded({"seconds": 2.5, "mib": 1.0}, {"seconds": 2.0, "mib": 1.0}) == [
        "seconds: is 2.5: must be at most 2"
    ]


@pytest.mark.parametrize("measured", [{}, {"seconds": math.nan}])
def test_what_was_not_measured_keeps_no_budget(measured: dict[str, float]) -> None:
    assert len(exceeded(measured, {"seconds": 2.0})) == 1


def test_a_size_without_budgets_has_none(tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    file.write_text("10x2:\n  seconds: 3\n")
    assert load("10x2", file) == {"seconds": 3.0}
    assert load("11x2", file) == {}


@pytest.mark.parametrize("size", ["100x10", "500x10"])
def test_every_budget_is_of_something_that_is_measured(size: str) -> None:
    budgets = load(size)
    assert budgets
    assert budgets.keys() <= METRICS.keys()
