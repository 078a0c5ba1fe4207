"""The memory of the last half hour stays small, in order and true, whatever the clock does."""

from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.autoscaling.peaks import HORIZON_SECONDS, SPACING_SECONDS, Mark, Past, note

marks = st.builds(
    Mark,
    time=st.floats(-1e4, 1e4),
    filled=st.integers(0, 12),
    taken=st.integers(0, 99),
    need=st.floats(0, 99),
    rate=st.floats(0, 99),
)


@given(st.lists(marks, max_size=200))
def test_the_memory_stays_small_and_in_order_whatever_the_clock_does(looks: list[Mark]) -> None:
    past: Past = ()
    for look in looks:
        past = note(past, look)
        times = [mark.time for mark in past]
        assert times == sorted(times)
        assert len(past) <= HORIZON_SECONDS / SPACING_SECONDS + 1
        assert look.time - HORIZON_SECONDS <= times[0] <= times[-1] <= look.time
        last = past[-1]
        assert last.filled >= look.filled
        assert last.taken >= look.taken
        assert last.need >= look.need
        assert last.rate >= look.rate


def test_the_most_of_each_spacing_is_noted() -> None:
    past: Past = ()
    looks = [(1, 5, 1.5, 2.0), (3, 3, 0.5, 9.0), (2, 4, 2.5, 1.0), (1, 1, 0.1, 0.5)]
    for index, (filled, taken, need, rate) in enumerate(looks):
        past = note(past, Mark(index * SPACING_SECONDS / 3, filled, taken, need, rate))
    assert past == (Mark(0.0, 3, 5, 2.5, 9.0), Mark(SPACING_SECONDS, 1, 1, 0.1, 0.5))
