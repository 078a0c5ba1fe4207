"""Each constant of the law has its row in docs/control.md, with its value."""

import re
from dataclasses import fields
from pathlib import Path

from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning

PAGE = Path(__file__).parents[3] / "docs" / "control.md"
MOST = 31
"""Constants that the law may have, with those that were settings of a manifest: one that is added takes the place of
another."""


def test_the_table_has_every_constant_with_its_value() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## The constants")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+)", section, re.MULTILINE))
    assert {name: float(value) for name, value in rows.items()} == {
        field.name: float(getattr(DEFAULT_TUNING, field.name)) for field in fields(Tuning)
    }


def test_there_are_few() -> None:
    assert len(fields(Tuning)) <= MOST
