"""The live token budget: it holds from the next step on, and starves no running request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_engine.core.config import SchedulerConfig

MAX_LEN = 60


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.lists(st.integers(1, 32), min_size=1, max_size=6))
def test_no_step_is_larger_and_no_answer_changes(prompts: list[int], budgets: list[int]) -> None:
    engine = CheckedEngine(
        SchedulerConfig(max_num_seqs=8, max_batched_tokens=32, max_model_len=MAX_LEN, block_size=4, num_blocks=200)
    )
    requests = [engine.add([i % 7 for i in range(length)], 12) for length in prompts]
    step = 0
    while engine.scheduler.has_work:
        engine.scheduler.token_budget = budget = budgets[step % len(budgets)]
        running, before = len(engine.scheduler.running), engine.scheduler.counters.computed_tokens
        engine.step()
        assert engine.scheduler.counters.computed_tokens - before <= max(budget, running)
        step += 1
    assert [r.output for r in requests] == [unbatched([i % 7 for i in range(n)], 12, MAX_LEN) for n in prompts]
    assert engine.scheduler.counters.preemptions == 0


def test_whoever_runs_advances_under_the_smallest_budget() -> None:
    engine = CheckedEngine(
        SchedulerConfig(max_num_seqs=8, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=4, num_blocks=200)
    )
    requests = [engine.add([i], 20) for i in range(8)]
    engine.step()
    engine.scheduler.token_budget = 1
    before = [len(request.output) for request in requests]
    engine.step()
    assert [len(request.output) for request in requests] == [count + 1 for count in before]
    assert engine.scheduler.counters.token_budget_changes == 1


def test_the_budget_stays_within_capacity() -> None:
    engine = CheckedEngine(
        SchedulerConfig(max_num_seqs=8, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=4, num_blocks=60)
    )
    for tokens in (0, 65):
        with pytest.raises(ValueError, match=f"token_budget is {tokens}: must be 1 to 64"):
            engine.scheduler.token_budget = tokens
    assert engine.scheduler.token_budget == 64
