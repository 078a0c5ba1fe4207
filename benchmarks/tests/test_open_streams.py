"""Open streams are measured with a gateway process as it is, and each client counts its frames."""

import json
import sys
from pathlib import Path

import pytest

from gateway import open_streams


def test_no_frame_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["open_streams", "--streams=20", "--rounds=2", "--json", str(file)])
    assert open_streams.main() == 0
    results = json.loads(file.read_text())
    assert results["frames lost"] == results["streams without an end"] == 0
    assert results["memory with all open, MiB"] > 10


def test_more_streams_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["open_streams", "--streams=100000000"])
    with pytest.raises(SystemExit):
        open_streams.main()
