"""The pace of admissions, which is that of this project's own engine, and the limit of requests that follows."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.queueing.queue_wait import QueueWait
from paternoster_vllm.queue_limit import AdmissionPace, RequestLimit

steps = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5), st.integers(0, 3)), max_size=50)


@given(steps, st.floats(0, 100))
def test_the_pace_is_that_of_our_own_engine(steps: list[tuple[float, int, int]], later: float) -> None:
    """Of requests that join the queue just before a step: (seconds since the step before, how many come, places)."""
    pace, wait, waiting, now = AdmissionPace(), QueueWait(), 0, 0.0
    for (_, coming, free), now in zip(steps, accumulate(seconds for seconds, _, _ in steps), strict=True):
        if not waiting:
            wait.start_queue(now)
        admitted = min(waiting + coming, free)
        waiting += coming - admitted
        wait.admit(admitted, now)
        pace.count_step(admitted, waiting, now)
    if waiting:
        assert pace.seconds_between(now + later) == pytest.approx(wait.seconds_between(now + later))
    assert pace.seconds_between(now + later) >= 0


def queue_of(seconds_between: float) -> AdmissionPace:
    pace = AdmissionPace()
    for step in range(100):
        pace.count_step(1, 8, step * seconds_between)
    return pace


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


def test_requests_beyond_the_limit_are_told_when_there_is_a_place() -> None:
    limit = RequestLimit()
    assert [limit.begin_request(is_rest=False) for _ in range(3)] == [0, 0, 0], "no limit yet"
    limit.update(4, 2.5)
    assert [limit.begin_request(is_rest=False) for _ in range(2)] == [0, 3]
    limit.update(2, 2.5)
    assert limit.begin_request(is_rest=False) == 8, "three more than the limit, and this one"
    assert limit.refused == 2
    for _ in range(3):
        limit.end_request()
    assert limit.begin_request(is_rest=False) == 0
    limit.update(1, 0.0)
    assert limit.begin_request(is_rest=False) == 1


def test_the_rest_of_an_answer_is_never_refused() -> None:
    limit = RequestLimit()
    limit.update(1, 1.0)
    assert [limit.begin_request(is_rest=True) for _ in range(3)] == [0, 0, 0]
    assert limit.begin_request(is_rest=False) == 3
