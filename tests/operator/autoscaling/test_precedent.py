"""A peak is met with what the one before it took, while it is like that one; else the formula has its way."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_inputs import decoding, policy

from paternoster_operator.autoscaling.autoscaler import decide, first_state
from paternoster_operator.autoscaling.decision import LoopDecision, Reason
from paternoster_operator.autoscaling.limits import PERIOD_SECONDS
from paternoster_operator.autoscaling.peaks import ALIKE, PEAK, SPACING_SECONDS, Mark, Past, Precedent, precedent
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals
from paternoster_operator.autoscaling.step_model import StepModel

LEFT = 120.0
"""Window of scaling down in these tests."""
BASE = (1.0, 1, 5.0)
"""Need, replicas taken and arrivals a second between peaks."""
PEAKED = (8.0, 5, 20.0)
"""And in one: eight are wanted, and five were filled when it was over."""

Look = tuple[float, int, float]


def past(*looks: Look) -> Past:
    return tuple(
        Mark(index * SPACING_SECONDS, filled=1, taken=taken, need=need, rate=rate)
        for index, (need, taken, rate) in enumerate(looks)
    )


def test_the_next_peak_is_told_by_the_last() -> None:
    known = precedent(past(*[PEAKED] * 4, *[BASE] * 6, PEAKED), 3, LEFT)
    assert known == Precedent(replicas=5, lasted_seconds=120.0, ago_seconds=300.0)
    assert str(known) == "one like it, 300 s before, took 5 and was over in 120 s"


def test_what_waited_until_the_peak_was_through_counts() -> None:
    slow = [PEAKED] * 2 + [(1.0, 7, 5.0)] + [BASE] * 6
    known = precedent(past(*slow, PEAKED), 3, LEFT)
    assert known is not None
    assert known.replicas == 7


def test_the_last_of_several_counts_if_it_is_alike() -> None:
    higher = (12.0, 9, 30.0)
    twice = [PEAKED] * 4 + [BASE] * 6 + [higher] * 2 + [BASE] * 6
    assert taken(past(*twice, PEAKED)) == 9
    assert taken(past(*twice, *[PEAKED] * 3)) == 5, "the last one was over by now"
    assert taken(past(*twice, higher)) == 9
    assert taken(past(*twice, *[higher] * 3)) is None


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ([PEAKED], "there was none before"),
        ([PEAKED] * 4 + [BASE] * 6, "there is none now"),
        ([PEAKED] * 4 + [BASE] * 6 + [PEAKED] * 5, "it lasts longer"),
        ([PEAKED] * 4 + [BASE] * 6 + [(8.0, 1, 20.0 * ALIKE + 0.1)], "more arrive"),
        ([PEAKED] * 4 + [BASE] * 4 + [PEAKED] * 1, "the first one was not left for long enough"),
        ([(4.0, 3, 20.0)] * 4 + [(4.0 / PEAK + 0.1, 3, 19.0)] * 6 + [(4.0, 3, 20.0)], "that is noise and no peak"),
    ],
)
def test_what_is_not_alike_is_left_to_the_formula(looks: list[Look], why: str) -> None:
    assert precedent(past(*looks), 3, LEFT) is None, why


def test_as_many_as_chance_allows_are_alike() -> None:
    assert taken(past(*[PEAKED] * 4, *[BASE] * 6, (8.0, 1, 20.0 * ALIKE - 0.1))) == 5


look = st.tuples(st.floats(0, 20), st.integers(0, 20), st.floats(0, 50))


@given(st.lists(look, min_size=1, max_size=60), st.integers(0, 12), st.floats(0, 600), st.floats(1, 3))
def test_more_arrivals_are_never_limited_where_fewer_are_not(
    looks: list[Look], current: int, left: float, times: float
) -> None:
    seen = past(*looks)
    last = seen[-1]
    fewer = precedent(seen, current, left)
    more = precedent((*seen[:-1], replace(last, rate=last.rate * times)), current, left)
    if more is not None:
        assert fewer is not None
        assert last.need > current


@given(st.lists(look, min_size=1, max_size=60), st.integers(0, 12), st.floats(0, 600))
def test_it_is_what_something_before_took(looks: list[Look], current: int, left: float) -> None:
    known = precedent(past(*looks), current, left)
    if known is not None:
        assert known.replicas in {taken for _, taken, _ in looks[:-1]}
        assert known.lasted_seconds > 0
        assert known.ago_seconds > known.lasted_seconds


def taken(seen: Past) -> int | None:
    known = precedent(seen, 3, LEFT)
    return None if known is None else known.replicas


def wide(**slo: int) -> ScalingPolicy:
    return policy(engine={"maxNumSeqs": 50}, autoscaling={"minReplicas": 1, "maxReplicas": 20}, slo=slo)


def decided(loop: ScalingPolicy, seen: Past = (), **rest: Any) -> LoopDecision:
    """What is made of forty requests a second of 100 tokens at 0.1 s each: 400 sequences, on three replicas of 50."""
    load = ReplicaLoad(running=40, kv_usage=0.0, inter_token_seconds=0.1, step_sums=decoding(0.05, 0.001))
    steps = StepModel()
    for _ in range(10):
        steps = steps.observe(Signals(replicas=(load,)), 5.0)
    model = ReplicaModel(answers=100, tokens=10_000, steps=steps)
    state = replace(first_state(loop, 0.0, replicas=3), past=seen, model=model, cap=50, replicas_due=0.0, since=-1e6)
    replicas = tuple(ReplicaLoad(running=40, kv_usage=0.2, inter_token_seconds=0.1) for _ in range(3))
    signals = Signals(
        ready=3, fresh=True, running=120, replicas=replicas, flow_seconds=30, arrived=1200, departed=1200,
        generated=120_000, **rest,
    )  # fmt: skip
    made = decide(loop, signals, state, (len(seen) + 1) * SPACING_SECONDS + PERIOD_SECONDS).replicas
    assert made is not None
    return made


KNOWN = past(*[(11.0, 5, 40.0)] * 4, *[BASE] * 9)
"""Forty a second were there before, and filled five."""


def test_what_is_ordered_is_what_the_last_peak_took() -> None:
    unknown = decided(wide())
    assert (unknown.target, unknown.reason) == (7, Reason.DEMAND_ABOVE_TARGET), "within its step of four"
    assert unknown.recommended == 10
    known = decided(wide(), KNOWN)
    assert (known.target, known.reason, known.limited_by) == (5, Reason.DEMAND_ABOVE_TARGET, (Reason.SHORT_PEAK,))
    assert known.recommended == 10
    assert known.message.endswith("took 5 and was over in 120 s")


def test_nothing_is_ordered_where_the_last_peak_took_no_more_than_there_is() -> None:
    known = decided(wide(), tuple(replace(mark, taken=min(mark.taken, 2)) for mark in KNOWN))
    assert (known.target, known.reason) == (3, Reason.SHORT_PEAK)
    assert known.otherwise == "10 replicas"


@pytest.mark.parametrize(
    ("load", "limited"),
    [
        ({"held": 1}, False),
        ({"waiting": 1}, False),
        ({"waiting": 1, "first_token_seconds": 1.0}, False),
        ({"waiting": 1, "first_token_seconds": 0.2}, True),
        ({"first_token_seconds": 1.0}, True),
    ],
)
def test_where_users_wait_the_formula_has_its_way(load: dict[str, Any], limited: bool) -> None:
    made = decided(wide(ttftP95Milliseconds=1000), KNOWN, **load)
    assert (made.target == 5) == limited
    assert (Reason.SHORT_PEAK in made.limited_by) == limited
