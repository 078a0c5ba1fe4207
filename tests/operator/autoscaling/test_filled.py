"""What a peak filled stays for so many times what a start takes; what was spare does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_inputs import policy

from paternoster_operator.autoscaling.autoscaler import decide, first_state
from paternoster_operator.autoscaling.decision import LawState, LoopDecision, Reason
from paternoster_operator.autoscaling.limits import PERIOD_SECONDS
from paternoster_operator.autoscaling.peaks import HORIZON_SECONDS, SPACING_SECONDS, Mark, Past, filled_within, note
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals

levels = st.lists(st.integers(0, 12), max_size=80)


def noted(filled: list[int], past: Past = (), begin: float = 0.0) -> Past:
    for index, replicas in enumerate(filled):
        time = begin + index * SPACING_SECONDS
        past = note(past, Mark(time, filled=replicas, taken=0, need=0.0, rate=0.0))
    return past


@given(levels, st.floats(0, 2 * HORIZON_SECONDS), st.floats(0, 600))
def test_no_more_is_kept_than_was_filled_and_no_less_for_longer(
    filled: list[int], seconds: float, longer: float
) -> None:
    past = noted(filled)
    kept = filled_within(past, seconds)
    assert kept in {0, *filled}
    assert kept >= (filled[-1] if filled else 0), "what is filled now is"
    assert filled_within(past, seconds + longer) >= kept


@given(levels, st.lists(st.integers(1, 12), min_size=1), st.floats(0, 1800))
def test_what_follows_a_forgotten_past_does_not_depend_on_it(
    past: list[int], filled: list[int], seconds: float
) -> None:
    begin = len(past) * SPACING_SECONDS + HORIZON_SECONDS
    assert filled_within(noted(filled, past=noted(past), begin=begin), seconds) == filled_within(noted(filled), seconds)


@pytest.mark.parametrize(("away", "kept"), [(0, 4), (270, 4), (300, 4), (330, 1)])
def test_a_peak_is_kept_for_so_long_and_given_up_then(away: int, kept: int) -> None:
    past = noted([4, 4] + [1] * (away // 30))
    assert filled_within(past, 300) == kept
    resumed = noted([1] * (away // 30), past=noted([4, 4]), begin=1000.0)
    assert filled_within(resumed, 300) == kept, "a silence is no time without need"


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
    assert last.message == "demand 10 / capacity 192 = 5% < 76%, but 4 were filled within 720 s"
    gone = [10] * 80  # twelve starts of a minute, and one step a minute
    replicas, _, _ = lived(loop, [180] * 8 + gone, first_state(loop, 0.0, replicas=1))
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
