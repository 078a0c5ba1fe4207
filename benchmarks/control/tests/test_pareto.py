"""The front, the choice and what is tried of a fixed fleet, against their definitions.

What is tried decides the same as trying everything, wherever more replicas serve no worse.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from control.contenders import Choice
from control.evaluate import Score
from control.hindsight import searched
from control.pareto import best, front
from control.tests.blank_score import BLANK

TARGET = 0.99
CAPS = (16, 64, 256)


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


@given(
    attained=st.lists(
        st.lists(st.sampled_from([0.5, 0.95, 0.99, 1.0]), min_size=3, max_size=3), min_size=1, max_size=12
    )
)
def test_as_good_as_trying_everything(attained: list[list[float]]) -> None:
    # More replicas serve no worse, whatever the cap.
    grid: dict[tuple[int, int], float] = {}
    for size, row in enumerate(attained, start=1):
        for cap, share in zip(CAPS, row, strict=True):
            grid[size, cap] = max(share, grid.get((size - 1, cap), 0.0))
    choices: list[Choice] = [{"replicas": size, "cap": cap} for size, cap in grid]

    def score(choice: Choice) -> Score:
        share = grid[choice["replicas"], choice["cap"]]
        return replace(BLANK, slo_attainment=share, gpu_hours=float(choice["replicas"]))

    every = [score(choice) for choice in choices]
    some = list(searched(choices, score, [TARGET]).values())
    exhaustive, bisected = best(every, TARGET), best(some, TARGET)
    assert exhaustive is not None
    assert bisected is not None
    if every[exhaustive].slo_attainment >= TARGET:
        assert some[bisected].gpu_hours == every[exhaustive].gpu_hours
        assert some[bisected].slo_attainment >= TARGET
    else:
        assert some[bisected].slo_attainment == every[exhaustive].slo_attainment


def test_nothing_is_tried_twice_and_the_highest_cap_comes_first() -> None:
    tried: list[tuple[int, int]] = []
    choices: list[Choice] = [{"replicas": size, "cap": cap} for size in range(1, 9) for cap in CAPS]

    def score(choice: Choice) -> Score:
        tried.append((choice["replicas"], choice["cap"]))
        return replace(BLANK, slo_attainment=1.0 if choice["replicas"] >= 5 else 0.9, gpu_hours=choice["replicas"])

    found = searched(choices, score, [0.99, 0.95])
    assert len(tried) == len(set(tried)) == len(found)
    assert tried[0] == (5, 256)
    assert {size for size, _ in tried if size >= 5} == {5}
    assert min(s.gpu_hours for s in found.values() if s.slo_attainment >= 0.99) == 5
