"""The cost of routing by text is measured with the gateway as it is."""

import sys

import pytest

from gateway import prompt_cost


def test_each_size_has_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["prompt_cost", "--sizes", "200", "10000", "--repeats", "1"])
    assert prompt_cost.main() == 0
    sizes = [int(line.split()[0]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(sizes) == 2
    assert sizes[0] < sizes[1]
