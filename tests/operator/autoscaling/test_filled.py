"""What a peak filled stays for a number of start times; what was spare does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import LawState, decide, first_state, policy

from paternoster_operator.autoscaling.decision import LoopDecision, Reason
from paternoster_operator.autoscaling.loops.limits import Evaluation, ReplicaState, filled_within, record_evaluation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING

PERIOD = DEFAULT_TUNING.replica_period_seconds
levels = st.lists(st.integers(0, 12), max_size=80)


def evaluated(filled: list[int], state: ReplicaState | None = None, begin: float = 0.0) -> ReplicaState:
    """A state after evaluations, one a period, of that many filled replicas each."""
    state = ReplicaState(target=4, since=0.0) if state is None else state
    loop = policy().replicas
    assert loop is not None
    for index, replicas in enumerate(filled):
        state = record_evaluation(loop, state, Evaluation(begin + index * PERIOD, 1, replicas), DEFAULT_TUNING)
    return state


@given(levels, st.floats(0, 1800), st.floats(0, 600))
def test_filled_replicas_of_a_longer_window_are_no_fewer(filled: list[int], seconds: float, longer: float) -> None:
    state = evaluated(filled)
    most = filled_within(state, seconds, DEFAULT_TUNING)
    assert most in {0, *filled}
    assert most >= (filled[-1] if filled else 0), "what is filled now is"
    assert filled_within(state, seconds + longer, DEFAULT_TUNING) >= most


@given(levels, st.floats(-1e4, 1e4))
def test_evaluations_are_bounded_whatever_the_clock_does(filled: list[int], begin: float) -> None:
    state = evaluated(filled, evaluated([1] * 200), begin)
    assert len(state.evaluations) <= DEFAULT_TUNING.max_kept_seconds / PERIOD + 1


@pytest.mark.parametrize(("away", "filled"), [(0, 4), (285, 4), (300, 4), (315, 1)])
def test_a_peak_counts_for_its_window_and_no_longer(away: int, filled: int) -> None:
    after = [1] * (away // 15)
    assert filled_within(evaluated([4, *after]), 300, DEFAULT_TUNING) == filled
    resumed = evaluated(after, evaluated([4]), begin=1e5)
    assert filled_within(resumed, 300, DEFAULT_TUNING) == filled, "a silence is no time without need"


def lived(
    loop: ScalingPolicy, running: list[int], state: LawState, startup: float = 60.0
) -> tuple[list[int], LawState, LoopDecision]:
    """Looks at running sequences, on as many replicas as are wanted; how many those were each time."""
    replicas: list[int] = []
    decision: LoopDecision | None = None
    begin = state.of_replicas.since + len(state.of_replicas.evaluations) * PERIOD
    for index, now_running in enumerate(running):
        seen = Signals(ready=state.replicas, fresh=True, running=now_running, startup_seconds=startup)
        made = decide(loop, seen, state, begin + index * PERIOD)
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
    assert last.message == (
        "demand 10 sequences (10 running) = 5% of the 192 that 4 replicas sustain < 80%; "
        "held for another 195 s, as 4 were filled within 720 s"
    )
    gone = [10] * 80  # twelve starts of a minute, and one step a minute
    replicas, _, _ = lived(loop, [180] * 8 + gone, first_state(loop, 0.0, replicas=1))
    assert replicas[-1] == 1


def test_a_hold_names_the_rule_that_ends_last() -> None:
    """A filled replica stays for twelve starts, where a spare one would for two: the reader waits for the former."""
    loop = policy(autoscaling={"minReplicas": 1, "maxReplicas": 4})
    _, _, last = lived(loop, [180] * 8 + [10, 10], first_state(loop, 0.0, replicas=1))
    assert last.reason is Reason.STABILIZING
    assert last.message.endswith("as 4 were filled within 720 s")


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
    assert {made.filled for made in state.of_replicas.evaluations} == {1}
