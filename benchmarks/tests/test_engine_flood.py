"""A flood before engines' own schedulers is measured with the gateway and the scheduler as they are."""

import json
import sys
from pathlib import Path

import pytest

from gateway import engine_flood


def test_engines_displace_and_gateways_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    sizes = {
        "cap": 4,
        "flood": 8,
        "requests": 8,
        "interval": 0.1,
        "settle": 0.5,
        "answer": 20,
        "lookahead": 0,
        "spare": 0,
    }
    small = [f"--{name}={value}" for name, value in sizes.items()]
    monkeypatch.setattr(sys, "argv", ["engine_flood", *small, "--json", str(file)])
    assert engine_flood.main() == 0
    results = json.loads(file.read_text())
    queued, held = results["queued in engines"], results["in gateways, 0 beyond the cap, 0 spare"]
    assert queued["displaced"] > 0
    assert held["displaced"] == 0
    assert held["most waiting in an engine"] <= 4 < queued["most waiting in an engine"]
