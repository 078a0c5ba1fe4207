"""For how many rows a decode step is captured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.runner.cuda.capture_sizes import capture_sizes, fitting_size


def test_sizes_of_a_large_engine() -> None:
    assert capture_sizes(512) == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@given(st.integers(1, 4096))
def test_sizes_ascend_to_the_capacity(capacity: int) -> None:
    sizes = capture_sizes(capacity)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] == 1
    assert sizes[-1] == capacity
    assert len(sizes) <= 21


@given(st.integers(1, 4096).flatmap(lambda capacity: st.tuples(st.just(capacity), st.integers(1, capacity))))
def test_a_step_has_the_smallest_size_that_holds_it(pair: tuple[int, int]) -> None:
    capacity, rows = pair
    sizes = capture_sizes(capacity)
    size = fitting_size(sizes, rows)
    assert size == min(size for size in sizes if size >= rows)
    assert size < 2 * rows or size <= 4
    if rows >= 24:
        assert 3 * (size - rows) <= size


def test_more_rows_than_captured() -> None:
    with pytest.raises(ValueError, match="rows is 9: must be at most 8"):
        fitting_size(capture_sizes(8), 9)
