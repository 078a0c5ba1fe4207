"""A killed gateway has the whole index again after its start, and the runner states when."""

import re
import sys

import pytest

from gateway import index_size


def test_a_restart_ends_with_the_whole_index(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--engines", "1", "--pieces", "9000", "--restarts", "2"]
    monkeypatch.setattr(sys, "argv", ["index_size", *flags])
    assert index_size.main() == 0
    restart = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"restart before 2 engines: .*, 18,000 pieces \d+\.\d\d s later, with .*", restart)
