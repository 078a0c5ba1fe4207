"""The live token budget: it holds from the next step on, and starves nobody who runs."""

import pytest
from fake_model import Ride, unbatched
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.config import SchedulerConfig

MAX_LEN = 60


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.lists(st.integers(1, 32), min_size=1, max_size=6))
def test_no_step_is_larger_and_no_answer_changes(prompts: list[int], budgets: list[int]) -> None:
    ride = Ride(SchedulerConfig(8, 32, MAX_LEN, 4, 200))
    requests = [ride.add([i % 7 for i in range(length)], 12) for length in prompts]
    step = 0
    while ride.scheduler.has_work:
        ride.scheduler.token_budget = budget = budgets[step % len(budgets)]
        running, before = len(ride.scheduler.running), ride.scheduler.counters.computed_tokens
        ride.step()
        assert ride.scheduler.counters.computed_tokens - before <= max(budget, running)
        step += 1
    assert [r.output for r in requests] == [unbatched([i % 7 for i in range(n)], 12, MAX_LEN) for n in prompts]
    assert ride.scheduler.counters.preemptions == 0


def test_whoever_runs_advances_under_the_smallest_budget() -> None:
    ride = Ride(SchedulerConfig(8, 64, MAX_LEN, 4, 200))
    requests = [ride.add([i], 20) for i in range(8)]
    ride.step()
    ride.scheduler.token_budget = 1
    before = [len(request.output) for request in requests]
    ride.step()
    assert [len(request.output) for request in requests] == [count + 1 for count in before]
    assert ride.scheduler.counters.token_budget_changes == 1


def test_the_budget_stays_within_capacity() -> None:
    ride = Ride(SchedulerConfig(8, 64, MAX_LEN, 4, 60))
    for tokens in (0, 65):
        with pytest.raises(ValueError, match=f"token_budget is {tokens}: must be 1 to 64"):
            ride.scheduler.token_budget = tokens
    assert ride.scheduler.token_budget == 64
