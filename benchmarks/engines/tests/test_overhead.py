"""What a call costs a process, and the report of it."""

from pathlib import Path

import psutil
import pytest

from engines.overhead import PROBE, SCRAPE, measure_call, measure_middleware, report
from paternoster_vllm.middleware import API_KEYS_ENV

CALL_SECONDS = 0.02
"""Of processor time; what the system counts moves by hundredths."""


async def compute() -> None:
    own = psutil.Process()
    until = sum(own.cpu_times()[:2]) + CALL_SECONDS
    while sum(own.cpu_times()[:2]) < until:
        pass


async def test_a_call_costs_what_the_process_computes_for_it() -> None:
    own = [psutil.Process()]
    assert await measure_call(compute, own, 10) == pytest.approx(CALL_SECONDS, rel=0.6)


def test_the_report_counts_a_scrape_in_five_seconds_and_three_probes() -> None:
    text = report({SCRAPE: [0.009, 0.010, 0.012], PROBE: [0.002]}, 12e-6)
    assert "a scrape: 10.0 ms (9.0 to 12.0) in 3 turns" in text
    assert "scrapes and probes: 0.32% of a processor" in text
    assert "the middleware: 12 us for a request with a key" in text


async def test_a_request_passes_the_middleware_by_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEYS_ENV, "")
    assert await measure_middleware(tmp_path) > 0
