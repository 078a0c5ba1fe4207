"""The front and the choice, against their definitions."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from control.evaluate import Score
from control.pareto import best, front
from control.tests.blank_score import BLANK


def scores(*pairs: tuple[float, float]) -> list[Score]:
    return [replace(BLANK, slo_attainment=attained, gpu_hours=hours) for attained, hours in pairs]


def test_the_fewest_hours_that_attain_enough() -> None:
    assert best(scores((0.999, 5.0), (0.991, 3.0), (0.98, 1.0)), 0.99) == 1
    assert best(scores((0.999, 5.0), (0.991, 3.0), (0.98, 1.0)), 0.95) == 2


def test_else_the_highest_attainment_and_then_the_fewest_hours() -> None:
    assert best(scores((0.9, 5.0), (0.94, 9.0), (0.94, 8.0)), 0.95) == 2
    assert best([], 0.95) is None


def test_a_front_by_hand() -> None:
    assert front(scores((0.99, 5.0), (0.95, 3.0), (0.94, 4.0), (0.95, 3.0), (0.5, 1.0))) == [
        True,
        True,
        False,
        True,
        True,
    ]


points = st.lists(st.tuples(st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]), st.integers(1, 6)), min_size=1, max_size=12)


@given(points, st.sampled_from([0.9, 0.99]))
def test_what_is_off_the_front_is_beaten_by_what_is_on_it(pairs: list[tuple[float, int]], target: float) -> None:
    on = front(scores(*pairs))
    assert any(on)
    for (attained, hours), stays in zip(pairs, on, strict=True):
        beaten = any(
            other and a >= attained and h <= hours and (a, h) != (attained, hours)
            for (a, h), other in zip(pairs, on, strict=True)
        )
        assert stays != beaten
    chosen = best(scores(*pairs), target)
    assert chosen is not None
    assert on[chosen]
