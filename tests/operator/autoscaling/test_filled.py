"""What a peak filled stays for so many times what a start takes; what was spare does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_inputs import policy

from paternoster_operator.autoscaling.autoscaler import decide, first_state
from paternoster_operator.autoscaling.decision import Evaluation, LawState, LoopDecision, Reason
from paternoster_operator.autoscaling.limits import LONGEST_KEPT_SECONDS, PERIOD_SECONDS, filled_within, remember
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals

levels = st.lists(st.integers(0, 12), max_size=80)


def evaluated(filled: list[int], state: LawState | None = None, begin: float = 0.0) -> LawState:
    """A state after evaluations, one a period, of that many filled replicas each."""
    state = LawState(4, 48, since=0.0) if state is None else state
    loop = policy().replicas
    assert loop is not None
    for index, replicas in enumerate(filled):
        state = remember(loop, state, Evaluation(begin + index * PERIOD_SECONDS, 1, replicas))
    return state


@given(levels, st.floats(0, 1800), st.floats(0, 600))
def test_filled_replicas_of_a_longer_window_are_no_fewer(filled: list[int], seconds: float, longer: float) -> None:
    state = evaluated(filled)
    most = filled_within(state, seconds)
    assert most in {0, *filled}
    assert most >= (filled[-1] if filled else 0), "what is filled now is"
    assert filled_within(state, seconds + longer) >= most


@given(levels, st.floats(-1e4, 1e4))
def test_evaluations_are_bounded_whatever_the_clock_does(filled: list[int], begin: float) -> None:
    state = evaluated(filled, evaluated([1] * 200), begin)
    assert len(state.evaluations) <= LONGEST_KEPT_SECONDS / PERIOD_SECONDS + 1


@pytest.mark.parametrize(("away", "filled"), [(0, 4), (285, 4), (300, 4), (315, 1)])
def test_a_peak_counts_for_its_window_and_no_longer(away: int, filled: int) -> None:
    after = [1] * (away // 15)
    assert filled_within(evaluated([4, *after]), 300) == filled
    resumed = evaluated(after, evaluated([4]), begin=1e5)
    assert filled_within(resumed, 300) == filled, "a silence is no time without need"


def lived(
    loop: ScalingPolicy, running: list[int], state: LawState, startup: float = 60.0
) -> tuple[list[int], LawState, LoopDecision]:
    """Looks at so many sequences that run, on as many replicas as are asked for; how many those were each time."""
    replicas: list[int] = []
    decision: LoopDecision | None = None
    begin = state.since + len(state.evaluations) * PERIOD_SECONDS
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
    assert {made.filled for made in state.evaluations} == {1}
