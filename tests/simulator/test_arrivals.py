"""Traffic: deterministic, in order, at the rate asked for, within the limits."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_simulator.arrivals import (
    PATTERNS,
    constant_rate,
    generate_requests,
    named_pattern,
    rate_bursts,
    rate_ramp,
    replay_trace,
)
from paternoster_traces.trace import TraceRow
from paternoster_traces.workload import Limits


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(PATTERNS)), st.floats(0.5, 50), st.floats(1, 60), st.integers(0, 2**31))
def test_synthetic_traffic_is_the_same_each_time_and_in_order(
    name: str, rate: float, duration: float, seed: int
) -> None:
    pattern = named_pattern(name, rate, duration)
    limits = Limits(max_total=500)
    rows = list(generate_requests(pattern, duration=duration, seed=seed, limits=limits))
    assert rows == list(generate_requests(pattern, duration=duration, seed=seed, limits=limits))
    assert all(a.arrival_s <= b.arrival_s for a, b in pairwise(rows))
    assert all(0 <= row.arrival_s < duration for row in rows)
    assert all(row.prompt_tokens + row.output_tokens <= 500 for row in rows)
    assert all(pattern.rate(t * duration / 97) <= pattern.highest + 1e-9 for t in range(97))


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_as_many_come_as_the_pattern_says(name: str) -> None:
    """Within five standard deviations of a Poisson count, in each third of the time."""
    duration, pieces = 300.0, 3000
    pattern = named_pattern(name, 40.0, duration)
    times = [row.arrival_s for row in generate_requests(pattern, duration=duration, seed=3)]
    for third in range(3):
        low, high = third * duration / 3, (third + 1) * duration / 3
        step = (high - low) / pieces
        expected = sum(pattern.rate(low + (i + 0.5) * step) for i in range(pieces)) * step
        count = sum(low <= time < high for time in times)
        assert abs(count - expected) < 5 * expected**0.5


def test_bursts_and_ramps_begin_at_their_times() -> None:
    burst = rate_bursts(2.0, period=100.0, share=0.2, factor=4.0, first=30.0)
    assert [burst.rate(t) for t in (0.0, 29.9, 30.0, 49.9, 50.0, 129.9, 130.0)] == [2, 2, 8, 8, 2, 2, 8]
    fades = rate_ramp(8.0, begin=10.0, until=20.0, factor=0.0)
    assert [fades.rate(t) for t in (0.0, 10.0, 15.0, 20.0, 50.0)] == [8, 8, 4, 0, 0]
    assert fades.highest == 8


def test_other_seeds_are_other_traffic() -> None:
    first, second = (list(generate_requests(constant_rate(5), duration=20, seed=seed)) for seed in (0, 1))
    assert first != second


ROWS = [TraceRow(0.0, 10, 5), TraceRow(2.0, 2000, 5), TraceRow(10.0, 30, 5), TraceRow(20.0, 40, 5)]


def test_a_trace_is_played_faster_cut_and_clipped() -> None:
    rows = list(replay_trace(ROWS, speed=2, start=1.0, limits=Limits(max_total=100)))
    assert [(row.arrival_s, row.prompt_tokens) for row in rows] == [(0.5, 95), (4.5, 30), (9.5, 40)]


def test_a_trace_is_repeated_until_the_end() -> None:
    rows = list(replay_trace(ROWS, rate=3 / 10, duration=40))
    assert len(rows) > len(ROWS)
    assert all(a.arrival_s <= b.arrival_s for a, b in pairwise(rows))
    assert rows[-1].arrival_s < 40
    assert [row.arrival_s for row in rows[:4]] == [0.0, 1.0, 5.0, 10.0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"speed": 0.0}, "speed is 0.0: must be above 0"),
        ({"rate": -1.0}, "rate is -1.0: must be above 0"),
        ({"start": 30.0}, "start is 30.0: must be before"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        list(replay_trace(ROWS, **arguments))


@pytest.mark.parametrize(
    ("name", "rate", "duration", "complaint"),
    [
        ("flood", 1, 1, "pattern is 'flood': must be one of constant"),
        ("step", 0, 1, "rate is 0: must be"),
        ("step", 1, -1, "duration is -1: must be"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused(name: str, rate: float, duration: float, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        named_pattern(name, rate, duration)
