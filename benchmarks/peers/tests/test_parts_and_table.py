"""What is kept of a comparison, and the table made of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from peers.parts import Part, Store
from peers.table import markdown, ratio_to

PART = Part("ours", "bf16", "ours 1", 64, 0, 64, 1000, 2.0, 100.0, 900.0, 20.0, 80.0, 512.0, 0.1, 0)


def test_a_part_that_was_kept_is_read_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "parts")
    assert store.read("ours", 64, 0) is None
    store.write(PART)
    assert store.read("ours", 64, 0) == PART
    assert store.read_all(["other", "ours"], [64, 8], 2) == [PART]


def test_a_file_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    Store(tmp_path).write(PART)
    (tmp_path / "ours-64-0.json").write_text('{"peer": "ours"}')
    with pytest.raises(ValueError, match=r"ours-64-0\.json: is not a result"):
        Store(tmp_path).read("ours", 64, 0)


def test_ratios_are_of_the_same_repetition() -> None:
    ours = [replace(PART, repetition=n, seconds=s) for n, s in enumerate((2.0, 4.0, 1.0))]
    theirs = [replace(PART, peer="it", repetition=n, seconds=4.0) for n in (0, 1, 5)]
    found = ratio_to(ours, theirs)
    assert found is not None
    assert (found.least, found.most) == (1.0, 2.0)
    assert ratio_to(ours, [replace(theirs[0], repetition=9)]) is None
    assert ratio_to(ours, [replace(theirs[0], output_tokens=0)]) is None


def test_the_table_has_the_most_at_once_first_and_the_fastest_first() -> None:
    slow = replace(PART, peer="slow", seconds=4.0)
    serial = replace(PART, concurrency=1, requests=8)
    lines = markdown([serial, slow, PART], "ours").splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| 64", "ours"],
        ["| 64", "slow"],
        ["| 1 (8 requests)", "ours"],
    ]
    assert "2.00 (2.00 to 2.00)" in lines[1]
    assert "0.10 / 0.90 | 20 / 80 | 512 | 0.10 |" in lines[0]
