"""What a flood costs is measured beside the least that any order without preemption would."""

import json
import sys
from pathlib import Path

import pytest

from gateway import tenant_flood


@pytest.mark.parametrize("spare", [0, 1])
def test_without_a_spare_place_nothing_waits_less_than_the_next_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spare: int
) -> None:
    file = tmp_path / "results.json"
    sizes = {"cap": 4, "flood": 8, "requests": 100, "interval": 1.0, "spare": spare}
    small = [f"--{name}={value}" for name, value in sizes.items()]
    monkeypatch.setattr(sys, "argv", ["tenant_flood", *small, "--json", str(file)])
    assert tenant_flood.main() == 0
    results = json.loads(file.read_text())
    alone, flooded, unordered = results["alone"], results["by tenant"], results["first come"]
    assert alone["least wait p99"] == 0
    assert 0 < flooded["least wait p99 anywhere"] <= flooded["least wait p99"]
    bound = alone["TTFT p99"] + flooded["least wait p99"]
    if spare:
        assert flooded["TTFT p99"] < bound
        assert max(results["most at an engine"]) > sizes["cap"]
    else:
        assert bound <= flooded["TTFT p99"] < unordered["TTFT p99"]
        assert max(results["most at an engine"]) == sizes["cap"]
