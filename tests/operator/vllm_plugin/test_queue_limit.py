"""The pace of a queue's admissions, and which requests of an API server there is room for; pure."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from paternoster_vllm.queue_limit import FRESH_SECONDS, AdmissionPace, RequestLimit


def queue_of(seconds_between: float) -> AdmissionPace:
    pace = AdmissionPace()
    for step in range(100):
        pace.count_step(1, 8, step * seconds_between)
    return pace


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 5)), min_size=1, max_size=50))
def test_the_pace_is_between_the_fastest_and_the_slowest_admission(steps: list[tuple[float, int]]) -> None:
    """Steps are (seconds since the step before, admitted)."""
    pace, now = AdmissionPace(), 0.0
    pace.count_step(0, 1, now)
    for now, (_, admitted) in zip(accumulate(seconds for seconds, _ in steps), steps, strict=True):
        pace.count_step(admitted, 1, now)
    gaps = [seconds / admitted for seconds, admitted in steps]
    assert min(gaps) * 0.999 <= pace.seconds_between(now) <= max(gaps) * 1.001


@given(st.integers(1, 86_400_000), st.floats(0, 1e6), st.integers(0, 1000))
def test_what_is_admitted_at_once_changes_no_pace(milliseconds: int, later: float, direct: int) -> None:
    """Quiet traffic after a queue: the next burst meets the pace of the last one, and the answer stays a number."""
    pace = queue_of(0.5)
    pace.count_step(8, 0, 50.0)
    before = pace.seconds_between(50.0)
    for number in range(direct):
        pace.count_step(1, 0, 50.0 + number)
    assert pace.seconds_between(50.0 + later) == before
    assert 1 <= (pace.count_places(milliseconds, 50.0 + later) or 0) < 2**32


def test_a_pace_beyond_measure_has_many_places_and_a_number_of_them() -> None:
    pace = AdmissionPace()
    pace.count_step(0, 1, 0.0)
    pace.count_step(5, 1, 5e-324)
    assert pace.count_places(86_400_000, 5e-324) in (None, 2**31)


def test_places_are_those_whose_wait_is_within_the_limit() -> None:
    pace = queue_of(0.5)
    assert [pace.count_places(milliseconds, 49.5) for milliseconds in (0, 1, 2_000, 60_000)] == [None, 1, 4, 120]
    assert AdmissionPace().count_places(1_000, 0.0) is None, "no admission was seen"


def test_a_queue_that_stands_still_has_fewer_places() -> None:
    pace = queue_of(0.5)
    places = [pace.count_places(10_000, 49.5 + silent) for silent in (0, 10, 100, 1000)]
    assert places == sorted(places, key=lambda each: -(each or 0))
    assert places[0] == 20
    assert places[-1] == 1


def begin(limit: RequestLimit, count: int, now: float = 0.0, *, is_rest: bool = False) -> list[int]:
    return [limit.begin_request(now, is_rest=is_rest) for _ in range(count)]


def test_requests_without_room_are_told_when_there_is_some() -> None:
    limit = RequestLimit()
    assert begin(limit, 3) == [0, 0, 0], "no limit yet"
    limit.update(1, 2.5, 0.0)
    assert begin(limit, 2) == [0, 3]
    limit.update(-2, 2.5, 0.0)
    assert begin(limit, 1) == [8], "two more than there is room for, and this one"
    assert limit.refused == 2
    for _ in range(3):
        limit.end_request()
    assert begin(limit, 2) == [0, 3]
    limit.update(0, 0.0, 0.0)
    assert begin(limit, 1) == [1]


def test_answers_that_nobody_reads_use_no_room() -> None:
    """Three requests have not ended, and the core has none of them any more."""
    limit = RequestLimit()
    for _ in range(2):
        limit.update(3, 1.0, 0.0)
        assert begin(limit, 4) == [0, 0, 0, 1]


def test_the_rest_of_an_answer_is_never_refused() -> None:
    limit = RequestLimit()
    limit.update(1, 1.0, 0.0)
    assert begin(limit, 3, is_rest=True) == [0, 0, 0]
    assert begin(limit, 1) == [3]


def test_an_old_report_refuses_nothing() -> None:
    limit = RequestLimit()
    limit.update(0, 1.0, 100.0)
    assert begin(limit, 1, 100.0 + FRESH_SECONDS) == [1]
    assert begin(limit, 1, 100.1 + FRESH_SECONDS) == [0]
