"""Percentiles over time are those of each window's own requests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_simulator.outcome.timeline import percentiles_by_window

requests = st.lists(st.tuples(st.integers(0, 500), st.floats(0, 100)), max_size=60)


@given(requests, st.sampled_from([1, 7, 60]))
def test_each_window_has_the_percentiles_of_its_requests(rows: list[tuple[int, float]], width: int) -> None:
    time = np.array([at for at, _ in rows], dtype=float)
    values = np.array([value for _, value in rows], dtype=float)
    timeline = percentiles_by_window(time, values, width=width, shares=(50, 95))
    windows = sorted({at // width for at, _ in rows})
    assert timeline.time == [(window + 0.5) * width for window in windows]
    for i, window in enumerate(windows):
        inside = [value for at, value in rows if at // width == window]
        assert timeline.count[i] == len(inside)
        assert timeline.shares[50][i] == pytest.approx(np.percentile(inside, 50))
        assert timeline.shares[95][i] == pytest.approx(np.percentile(inside, 95))


def test_a_window_needs_a_width() -> None:
    with pytest.raises(ValueError, match="width is 0: must be above 0"):
        percentiles_by_window(np.zeros(1), np.zeros(1), width=0, shares=(50,))
