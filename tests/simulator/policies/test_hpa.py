"""The HPA's arithmetic, by hand from its documentation and source."""

from hypothesis import given
from hypothesis import strategies as st

from peer_policies.bounds import Bounds
from peer_policies.hpa import Behavior, HorizontalPodAutoscaler, Rate, ScalingRules

TEN = Bounds(1, 10)


def test_up_to_usage_over_target() -> None:
    assert HorizontalPodAutoscaler(TEN).sync(0, 3, usage=21, target=5) == 5


def test_a_ratio_within_a_tenth_holds() -> None:
    hpa = HorizontalPodAutoscaler(TEN)
    assert hpa.sync(0, 4, usage=22, target=5) == 4
    assert hpa.sync(15, 4, usage=18, target=5) == 4
    assert hpa.sync(30, 4, usage=22.1, target=5) == 5


def test_without_behavior_a_step_doubles_at_most_but_reaches_four() -> None:
    assert HorizontalPodAutoscaler(TEN).sync(0, 1, usage=50, target=5) == 4
    assert HorizontalPodAutoscaler(TEN).sync(0, 3, usage=50, target=5) == 6


def test_down_only_when_the_highest_wish_of_five_minutes_is_lower() -> None:
    hpa = HorizontalPodAutoscaler(TEN)
    assert hpa.sync(0, 4, usage=20, target=5) == 4
    wishes = [hpa.sync(now, 4, usage=5, target=5) for now in range(15, 300, 15)]
    assert set(wishes) == {4}
    assert hpa.sync(300, 4, usage=5, target=5) == 1


def test_bounds_come_before_the_metric() -> None:
    hpa = HorizontalPodAutoscaler(Bounds(2, 6))
    assert hpa.sync(0, 1, usage=0, target=5) == 2
    assert hpa.sync(15, 8, usage=100, target=5) == 6
    assert hpa.sync(30, 6, usage=100, target=5) == 6


def test_behavior_adds_the_larger_of_four_pods_and_all_over_again() -> None:
    assert HorizontalPodAutoscaler(Bounds(1, 50), Behavior()).sync(0, 1, usage=500, target=5) == 5
    assert HorizontalPodAutoscaler(Bounds(1, 50), Behavior()).sync(0, 8, usage=500, target=5) == 16


def test_a_rate_counts_what_the_period_already_brought() -> None:
    rules = ScalingRules(0.0, (Rate("Pods", 2, 60.0),))
    hpa = HorizontalPodAutoscaler(TEN, Behavior(scale_up=rules))
    assert hpa.sync(0, 2, usage=50, target=5) == 4
    assert hpa.sync(15, 4, usage=50, target=5) == 4
    assert hpa.sync(60, 4, usage=50, target=5) == 6


def test_a_window_upwards_takes_the_lowest_wish_in_it() -> None:
    rules = ScalingRules(60.0, (Rate("Pods", 10, 60.0),))
    hpa = HorizontalPodAutoscaler(TEN, Behavior(scale_up=rules))
    assert hpa.sync(0, 2, usage=10, target=5) == 2
    assert hpa.sync(15, 2, usage=40, target=5) == 2
    assert hpa.sync(45, 2, usage=30, target=5) == 2
    assert hpa.sync(60, 2, usage=40, target=5) == 6


def test_a_percentage_downwards_rounds_to_the_larger_change() -> None:
    rules = ScalingRules(0.0, (Rate("Percent", 50, 60.0),))
    hpa = HorizontalPodAutoscaler(TEN, Behavior(scale_down=rules))
    hpa.sync(0, 5, usage=25, target=5)
    assert hpa.sync(1, 5, usage=1, target=5) == 2


usages = st.lists(st.floats(0, 200, allow_nan=False), min_size=1, max_size=60)


@given(usages, st.booleans(), st.integers(1, 10))
def test_never_outside_the_bounds(usages: list[float], behavior: bool, replicas: int) -> None:
    hpa = HorizontalPodAutoscaler(TEN, Behavior() if behavior else None)
    for i, usage in enumerate(usages):
        replicas = hpa.sync(15.0 * i, replicas, usage, 5.0)
        assert 1 <= replicas <= 10


@given(usages, st.integers(1, 10))
def test_with_behavior_never_against_the_metric(usages: list[float], replicas: int) -> None:
    hpa = HorizontalPodAutoscaler(TEN, Behavior())
    for i, usage in enumerate(usages):
        before, replicas = replicas, hpa.sync(15.0 * i, replicas, usage, 5.0)
        assert replicas <= before or usage / 5 > before
        assert replicas >= before or usage / 5 < before


def test_without_behavior_an_old_wish_still_counts() -> None:
    hpa = HorizontalPodAutoscaler(TEN)
    assert hpa.sync(0, 1, usage=21, target=5) == 4
    assert hpa.sync(15, 4, usage=0, target=5) == 5
