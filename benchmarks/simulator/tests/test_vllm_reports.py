"""The two kinds of reports are compared on the same requests and the same steps."""

import pytest

from paternoster_simulator.profile import load_profile
from simulator import vllm_reports
from simulator.vllm_reports import ENGINES, GROWTH, Result, growing, markdown, simulate


def test_requests_grow_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_reports, "DURATION", 400.0)
    rows = list(growing(load_profile("smollm2-135m-avx512-cpu2"), 0))
    halves = [[row for row in rows if (row.arrival_s < 200) is first] for first in (True, False)]
    before, after = (sum(row.output_tokens for row in half) / len(half) for half in halves)
    assert after / before == pytest.approx(GROWTH, rel=0.25)


def test_a_fleet_that_cannot_grow_bounds_the_queues_of_its_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_reports, "DURATION", 100.0)
    measured = load_profile("smollm2-135m-avx512-cpu2")
    profiles = [measured.model_copy(update={"engine": engine}) for engine in ("Paternoster", "VLLM")]
    ours, vllm = (simulate(profile, "growing", "Goodput", 0, 1) for profile in profiles)
    assert (ours.engine, vllm.engine) == ENGINES
    assert ours.lost > 0
    assert vllm.lost > 0


def test_a_row_has_the_means_of_its_seeds() -> None:
    results = [
        Result("spike", "Goodput", engine, within, 0.02, 4000.0, 150.0, 0.01, 0.0, 1.5)
        for engine, within in (("VLLM", 0.5), ("VLLM", 0.7), ("Paternoster", 0.8))
    ]
    lines = markdown(results).splitlines()
    assert lines[2] == "| spike | Goodput | VLLM | 60.0% (50.0% to 70.0%) | 2.0% | 4.0 | 150 | 1.0% | 0.0% | 1.50 |"
    assert len(lines) == 4
