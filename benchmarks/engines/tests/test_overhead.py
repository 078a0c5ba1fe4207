"""What a call costs a process, and the report of it."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engines import overhead
from engines.overhead import PROBE, SCRAPE, measure_call, measure_middleware, report
from paternoster_vllm.middleware import API_KEYS_ENV

CALL_SECONDS = 0.02
"""Processor time of a call; what the system counts moves by hundredths."""


async def compute() -> None:
    own = psutil.Process()
    until = sum(own.cpu_times()[:2]) + CALL_SECONDS
    while sum(own.cpu_times()[:2]) < until:
        pass


async def test_a_call_costs_what_the_process_computes_for_it() -> None:
    own = [psutil.Process()]
    assert await measure_call(compute, own, 10) == pytest.approx(CALL_SECONDS, rel=0.6)


def test_the_report_counts_a_scrape_in_five_seconds_and_three_probes() -> None:
    text = report({SCRAPE: [0.009, 0.010, 0.012], PROBE: [0.002]}, 12e-6, [])
    assert "a scrape: 10.0 ms (9.0 to 12.0) in 3 turns" in text
    assert "scrapes and probes: 0.32% of a processor" in text
    assert "the middleware: 12 us for a request with a key" in text
    assert "ratio" not in text


def test_the_report_compares_the_turns_of_each_pair() -> None:
    text = report({SCRAPE: [0.01], PROBE: [0.002]}, 12e-6, [(99.0, 100.0), (202.0, 200.0), (100.0, 100.0)])
    assert "tokens a second with calls and without, medians: 100.0 and 100.0" in text
    assert "their ratio: 1.0000, standard error 0.0058; median 1.0000, 0.9900 to 1.0100; 3 pairs of turns" in text


class Fleet:
    """Makes ten tokens between two reads."""

    def __init__(self) -> None:
        self.num_reads = self.num_probes = 0

    async def stats(self) -> SimpleNamespace:
        self.num_reads += 1
        return SimpleNamespace(generation_tokens_total=10 * self.num_reads)

    async def call_core(self) -> None:
        self.num_probes += 1


async def test_calls_come_in_the_turns_with_calls_alone() -> None:
    fleet = Fleet()
    assert await overhead.count_tokens(fleet, 0.1, called=False) > 0  # type: ignore[arg-type]
    assert (fleet.num_reads, fleet.num_probes) == (2, 0)
    assert await overhead.count_tokens(fleet, 0.1, called=True) > 0  # type: ignore[arg-type]
    assert fleet.num_reads >= 5
    assert fleet.num_probes >= 1


async def test_a_request_passes_the_middleware_by_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEYS_ENV, "")
    assert await measure_middleware(tmp_path) > 0
