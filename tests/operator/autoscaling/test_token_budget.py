"""The token budget: lowered to what keeps the limit between tokens, raised where first tokens come late."""

import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.autoscaling.law_inputs import LawState, decide, law_state, policy, seen, step_sums

from paternoster_contract.stats import Unreported
from paternoster_engine.core.step_work import StepWork
from paternoster_operator.autoscaling.decision import LoopDecision, Reason
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.replica_model import ReplicaModel
from paternoster_operator.autoscaling.signals import ReplicaLoad, Signals
from paternoster_operator.autoscaling.step_model import StepModel

SLO = {"ttftP95Milliseconds": 5000, "itlP95Milliseconds": 200}


def prompts(per_token: float) -> ReplicaModel:
    """Learnt of steps of 20 ms, so much more for each prompt token."""
    works = [StepWork(prefill_tokens=tokens, decode_sequences=10) for tokens in (0, 0, 500, 1000, 2000)] * 10
    sums = step_sums((work, 0.02 + per_token * work.prefill_tokens) for work in works)
    model = StepModel()
    for _ in range(50):
        model = model.observe(Signals(replicas=(ReplicaLoad(10, 0.1, 0.05, sums),)), 5.0)
    return ReplicaModel(steps=model)


def lasting(spread: float, steps: int = 4000) -> tuple[ReplicaModel, Callable[[int], list[float]]]:
    """Learnt of steps whose times are ``spread`` apart as on a machine with other work, and times of others."""
    rng = Random(0)
    sigma = math.sqrt(math.log(1 + spread**2))

    def measure(tokens: int) -> float:
        return (0.02 + 1.4e-4 * tokens) * rng.lognormvariate(-(sigma**2) / 2, sigma)

    chunks = [rng.choice((0, 0, 300, 800, 2000)) for _ in range(steps)]
    sums = step_sums((StepWork(prefill_tokens=each, decode_sequences=10), measure(each)) for each in chunks)
    model = StepModel()
    for _ in range(50):
        model = model.observe(Signals(replicas=(ReplicaLoad(10, 0.1, 0.05, sums),)), 5.0)
    return ReplicaModel(steps=model), lambda tokens: sorted(measure(tokens) for _ in range(1000))


def tuned(slo: dict[str, int] | None = None, **budget: Any) -> ScalingPolicy:
    slo = SLO if slo is None else slo
    return policy(slo=slo, concurrency={"mode": "Auto", "tokenBudget": budget}, engine={"maxNumSeqs": 48})


def evaluate(loop: ScalingPolicy, state: LawState, **load: Any) -> tuple[LoopDecision, LawState]:
    looked = {"token_capacity": 2048, "token_budget": state.token_budget or 2048, **load}
    pace = (ReplicaLoad(10, 0.1, looked.pop("pace", 0.05)),)
    made = decide(loop, seen(replicas=pace, **looked), state, 100.0)
    assert made.token_budget is not None
    return made.token_budget, made.state


def state(budget: int = 0, per_token: float = 1.4e-4, **rest: Any) -> LawState:
    state_fields = {"learnt": 100.0, "token_budget": budget, "model": prompts(per_token), **rest}
    return law_state(2, 48, **state_fields)


def test_a_step_that_keeps_tokens_waiting_is_made_smaller() -> None:
    decision, after = evaluate(tuned(), state())
    assert (decision.action, decision.reason) == ("Down", Reason.LATENCY_ABOVE_TARGET)
    assert 1024 <= decision.target <= 1184, "nine tenths of 200 ms less 20 ms, over 0.14 ms a token"
    assert "a step of 2048 tokens takes 0.3" not in decision.message
    assert "a step of 2048 tokens takes 30" in decision.message
    assert after.token_budget == decision.target


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.3, 0.5, 0.8])
def test_the_slow_ones_of_the_steps_with_a_prompt_keep_the_limit(spread: float) -> None:
    """It is one of the 95th percentile: on a busy machine the mean has to be far below it."""
    model, measure = lasting(spread)
    decision, _ = evaluate(tuned(), law_state(2, 48, learnt=100.0, model=model))
    times = measure(decision.target - 10)
    assert 0.1 < times[950] <= 1.05 * 0.2


def test_steps_that_are_short_enough_are_left_alone() -> None:
    decision, _ = evaluate(tuned(), state(per_token=5e-5))
    assert (decision.target, decision.reason) == (2048, Reason.WITHIN_TOLERANCE)


def test_a_queue_does_not_move_it() -> None:
    """A larger step reads the same prompts no sooner, and what it raised was lowered again for ever."""
    decision, _ = evaluate(tuned(), state(1152), waiting=20)
    assert (decision.target, decision.reason) == (1152, Reason.WITHIN_TOLERANCE)


@pytest.mark.parametrize("current", [1088, 1120, 1216])
def test_a_change_of_less_than_a_tenth_is_no_change(current: int) -> None:
    decision, _ = evaluate(tuned(), state(current))
    assert (decision.target, decision.reason) == (current, Reason.WITHIN_TOLERANCE)


def test_room_is_taken_when_steps_have_become_shorter() -> None:
    decision, _ = evaluate(tuned(), state(512))
    assert (decision.action, decision.reason) == ("Up", Reason.HEADROOM_AVAILABLE)


def test_the_floor_and_the_modes() -> None:
    decision, _ = evaluate(tuned(min=1500), state())
    assert (decision.target, decision.limited_by) == (1500, (Reason.AT_FLOOR,))
    advised, after = evaluate(tuned(mode="Advisory"), state())
    assert (advised.target < 2048, advised.applied, after.token_budget) == (True, False, 2048)
    fixed = decide(tuned(mode="Fixed"), seen(token_capacity=2048, token_budget=512), state(512), 100.0)
    assert (fixed.token_budget, fixed.state.token_budget) == (None, 2048)


def test_without_a_limit_or_a_budget_nothing_is_lowered() -> None:
    decision, _ = evaluate(tuned({}), state(512))
    assert decision.target == 2048
    old = decide(tuned(), seen(token_capacity=0), state(), 100.0)
    assert (old.token_budget, old.state.token_budget) == (None, 0), "engines of an earlier release"


@given(
    budget=st.none() | st.integers(128, 4096),
    capacity=st.integers(64, 4096),
    pace=st.none() | st.floats(0.001, 2),
    waiting=st.integers(0, 100),
    per_token=st.sampled_from([1e-6, 1.4e-4, 1e-2]),
)
def test_it_stays_between_floor_and_capacity(
    budget: int | None, capacity: int, pace: float | None, waiting: int, per_token: float
) -> None:
    decision, after = evaluate(
        tuned(),
        state(budget or 0, per_token),
        token_capacity=capacity,
        pace=pace,
        waiting=waiting,
    )
    assert min(128, capacity) <= decision.target <= capacity
    assert after.token_budget == decision.target


def test_engines_that_report_no_steps_keep_their_budget() -> None:
    unknown, _ = evaluate(tuned(), law_state(2, 48, token_budget=512))
    assert (unknown.target, unknown.reason) == (512, Reason.INSUFFICIENT_DATA)
    decision, _ = evaluate(tuned(), law_state(2, 48, token_budget=512), unreported=(Unreported.STEPS,))
    assert (decision.target, decision.reason) == (512, Reason.NOT_REPORTED)
    assert decision.message == "held, as the engines do not report their steps"
    assert {name for name, text in decision.inputs.items() if text == "not reported"} == {"fit", "spread"}
    silent, _ = evaluate(tuned(), law_state(2, 48, token_budget=512), fresh=False, stale_pods=("a", "b"))
    assert silent.reason is Reason.METRICS_STALE
    assert {name for name, text in silent.inputs.items() if text == "not reported"} == {"fit", "spread", "waiting"}


def test_silence_changes_nothing() -> None:
    decision, _ = evaluate(tuned(), state(), fresh=False, stale_pods=("a",))
    assert (decision.target, decision.reason) == (2048, Reason.METRICS_STALE)


@pytest.mark.parametrize(
    ("budget", "before", "capacity", "target", "why"),
    [
        ({}, 2048, 512, 512, "engines have at most 512 tokens a step"),
        ({"min": 128}, 2048, 512, 512, "engines have at most 512 tokens a step"),
        ({"min": 900}, 512, 2048, 900, "the manifest allows no less than 900 tokens"),
        ({}, 64, 2048, 128, "the loop goes no lower than 128 tokens"),
    ],
)
def test_a_budget_out_of_its_bounds_names_what_bounds_it(
    budget: dict[str, int], before: int, capacity: int, target: int, why: str
) -> None:
    """A cooldown after the last change, so that the bounds alone move it."""
    just_changed = state(before, budget_changed=99.0)
    decision, _ = evaluate(tuned(**budget), just_changed, token_capacity=capacity)
    assert (decision.target, decision.reason) == (target, Reason.BOUNDS_CHANGED)
    assert decision.message == f"token budget {before}->{target} tokens: {why}"
