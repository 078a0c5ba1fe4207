"""What a peak filled is kept until the next could be there; what was spare is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_inputs import policy

from paternoster_operator.autoscaling.autoscaler import decide, first_state
from paternoster_operator.autoscaling.decision import LawState, LoopDecision, Reason
from paternoster_operator.autoscaling.limits import PERIOD_SECONDS
from paternoster_operator.autoscaling.peaks import (
    FIRST_KEPT_SECONDS,
    HORIZON_SECONDS,
    LONGEST_KEPT_SECONDS,
    MARGIN,
    SPACING_SECONDS,
    Mark,
    Past,
    expected,
    note,
)
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals

LEFT = 120.0
"""Window of scaling down in these tests."""

levels = st.lists(st.integers(0, 12), max_size=80)


def noted(filled: list[int], past: Past = (), begin: float = 0.0) -> Past:
    for index, replicas in enumerate(filled):
        time = begin + index * SPACING_SECONDS
        past = note(past, Mark(time, filled=replicas, taken=0, need=0.0, rate=0.0))
    return past


def after(peak: int, seconds: float, base: int = 1) -> list[int]:
    """A peak, and then so long at the base."""
    return [peak, peak] + [base] * round(seconds / SPACING_SECONDS)


def kept(filled: list[int]) -> int:
    peak = expected(noted(filled), LEFT)
    assert peak is not None
    return peak.replicas


@given(levels, st.floats(0, 600))
def test_no_more_is_kept_than_was_filled_and_never_for_longer_than_the_longest(filled: list[int], left: float) -> None:
    peak = expected(noted(filled), left)
    if not filled:
        assert peak is None
        return
    assert peak is not None, "the last level at least"
    assert filled[-1] <= peak.replicas <= max(filled)
    assert peak.away_seconds <= peak.kept_seconds <= LONGEST_KEPT_SECONDS
    shorter = expected(noted(filled), left, most_seconds=60)
    assert shorter is not None
    assert shorter.kept_seconds <= 60
    assert shorter.replicas <= peak.replicas


@given(levels, st.lists(st.integers(1, 12), min_size=1), st.floats(0, 600))
def test_what_follows_a_forgotten_past_does_not_depend_on_it(past: list[int], filled: list[int], left: float) -> None:
    begin = len(past) * SPACING_SECONDS + HORIZON_SECONDS
    assert expected(noted(filled, past=noted(past), begin=begin), left) == expected(noted(filled), left)


def test_a_first_peak_is_kept_for_a_while_and_given_up_then() -> None:
    assert kept(after(4, FIRST_KEPT_SECONDS)) == 4
    assert kept(after(4, FIRST_KEPT_SECONDS + SPACING_SECONDS)) == 1


@pytest.mark.parametrize("gap", [180.0, 300.0, 540.0, 750.0])
def test_what_came_back_is_kept_by_the_time_it_took(gap: float) -> None:
    learnt = min(MARGIN * gap, LONGEST_KEPT_SECONDS)
    again = after(4, gap)
    assert kept(again + after(4, learnt)) == 4
    assert kept(again + after(4, learnt + SPACING_SECONDS)) == 1


def test_a_higher_peak_is_a_first_one_while_the_lower_comes_again() -> None:
    twice = after(4, 300) + after(6, 300)
    assert kept(twice) == 6
    assert kept(twice + [1] * 8) == 6
    assert kept(twice + [1] * 11) == 1


def test_a_short_lull_is_no_gap() -> None:
    """Within the window nothing is given up, so nothing is learnt of how long it may be away."""
    assert kept(after(4, LEFT) + after(4, FIRST_KEPT_SECONDS)) == 4
    assert kept(after(4, LEFT + SPACING_SECONDS) + after(4, FIRST_KEPT_SECONDS)) == 1


def test_a_silence_is_no_gap() -> None:
    before = noted(after(4, 30))
    resumed = noted(after(4, FIRST_KEPT_SECONDS), past=before, begin=1000.0)
    assert expected(resumed, LEFT) == expected(noted(after(4, FIRST_KEPT_SECONDS)), LEFT)


def lived(
    loop: ScalingPolicy, running: list[int], state: LawState, startup: float = 60.0
) -> tuple[list[int], LawState, LoopDecision]:
    """Looks at so many sequences that run, on as many replicas as are asked for; how many those were each time."""
    replicas: list[int] = []
    decision: LoopDecision | None = None
    begin = state.since + len(state.past) * SPACING_SECONDS
    for index, now_running in enumerate(running):
        seen = Signals(ready=state.replicas, fresh=True, running=now_running, startup_seconds=startup)
        made = decide(loop, seen, state, begin + index * PERIOD_SECONDS)
        state, decision = made.state, made.replicas
        replicas.append(state.replicas)
    assert decision is not None
    return replicas, state, decision


def test_what_was_spare_goes_soon_and_what_was_filled_stays() -> None:
    """180 sequences are to have five replicas and fill four of 48."""
    loop = policy()
    replicas, _, last = lived(loop, [180] * 8 + [10] * 36, first_state(loop, 0.0, replicas=1))
    assert max(replicas) == 5
    assert replicas[-1] == 4
    assert last.reason is Reason.STABILIZING
    assert last.message == "demand 10 / capacity 192 = 5% < 76%, but 4 were filled 540 s ago, kept for 600 s"
    replicas, _, _ = lived(loop, [180] * 8 + [10] * 70, first_state(loop, 0.0, replicas=1))
    assert replicas[-1] == 1


def test_what_is_quickly_back_is_not_kept_for_long() -> None:
    replicas, _, _ = lived(policy(), [180] * 8 + [10] * 32, first_state(policy(), 0.0, replicas=1), startup=20.0)
    assert replicas[8 + 240 // 15 - 2] == 4
    assert replicas[-1] == 1


def test_a_window_that_the_user_set_is_all_there_is() -> None:
    loop = policy(autoscaling={"minReplicas": 1, "maxReplicas": 10, "scaleDown": {"stabilizationWindowSeconds": 60}})
    replicas, _, _ = lived(loop, [180] * 8 + [10] * 36, first_state(loop, 0.0, replicas=1))
    assert replicas[-1] == 1


def test_no_more_was_filled_than_there_was() -> None:
    """One replica runs four times what it sustains: what it had not is not kept."""
    loop = policy(autoscaling={"minReplicas": 1, "maxReplicas": 1})
    _, state, _ = lived(loop, [190] * 4, first_state(loop, 0.0, replicas=1))
    assert {mark.filled for mark in state.past} == {1}
    assert {mark.taken for mark in state.past} == {4}
