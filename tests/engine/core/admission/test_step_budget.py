"""Steps hold fewer tokens while several tenants are served, and as many as ever for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.core.admission.step_budget import LEAST_TOKENS, RECENT_STEPS, StepBudget
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.step_pace import StepPace


def scheduler(order: str = "fair-share", shared: int | None = 40) -> Scheduler:
    made = Scheduler(
        SchedulerConfig(max_num_seqs=8, max_batched_tokens=256, max_model_len=4096, num_blocks=1000, order=order)
    )
    made.bound_shared_steps(shared)
    return made


def request(name: str, tenant: str, num_prompt: int, max_tokens: int = 1) -> Request:
    return Request(RequestSpec(name, list(range(num_prompt)), SamplingParams(max_tokens=max_tokens), tenant=tenant))


def step(made: Scheduler) -> Batch:
    batch = made.schedule(1.0)
    made.update(batch, StepResult([7 if item.samples else None for item in batch.scheduled]), 1.0)
    return batch


def test_one_tenant_has_whole_steps() -> None:
    made = scheduler()
    made.add(request("a", "noisy", 2000), request("b", "noisy", 30))
    assert step(made).num_tokens == 256


@pytest.mark.parametrize(("order", "shared"), [("fcfs", 40), ("priority", 40), ("fair-share", None)])
def test_steps_are_whole_where_tenants_or_times_are_not_known(order: str, shared: int | None) -> None:
    made = scheduler(order, shared)
    made.add(request("a", "noisy", 2000), request("b", "quiet", 30))
    assert step(made).num_tokens == 256


def test_steps_are_short_while_another_tenant_waits_runs_or_may_come_back() -> None:
    made = scheduler()
    made.add(request("a", "noisy", 4000))
    assert step(made).num_tokens == 256
    made.add(request("b", "quiet", 30, 2))
    first = step(made)
    assert first.num_tokens == 40
    assert {item.request.request_id: item.num_tokens for item in first.scheduled} == {"b": 30, "a": 10}
    assert [step(made).num_tokens for _ in range(3)] == [40] * 3, "one after its end, too"
    lengths = [step(made).num_tokens for _ in range(80)]
    assert set(lengths[:70]) == {40}


def test_a_tenant_that_stays_away_is_forgotten() -> None:
    budget = StepBudget(256)
    budget.shared = 40
    for tenant in ("noisy", "quiet"):
        budget.add_request(tenant)
    budget.remove_request("quiet", 10)
    assert [budget.limit_tokens(step, 1) for step in (10, 10 + RECENT_STEPS, 11 + RECENT_STEPS)] == [40, 40, 256]


@given(live=st.integers(1, 512), shared=st.integers(1, 512), running=st.integers(0, 64), several=st.booleans())
def test_every_sequence_goes_on_and_no_step_is_longer_than_alone(
    live: int, shared: int, running: int, several: bool
) -> None:
    budget = StepBudget(live)
    budget.shared = shared
    for tenant in ("a", "b")[: 1 + several]:
        budget.add_request(tenant)
    tokens = budget.limit_tokens(1, running)
    assert running <= tokens <= max(live, running)
    assert tokens == max(live, running) or (several and tokens == max(shared, running + LEAST_TOKENS))


@given(st.floats(0.0, 0.05), st.floats(1e-4, 5e-3))
def test_a_pace_settles_at_the_time_asked_for(fixed: float, per_token: float) -> None:
    pace, tokens = StepPace(), 512
    assert pace.tokens_in(0.1) is None
    for _ in range(400):
        pace.add(tokens, tokens, fixed + per_token * tokens)
        tokens = max(LEAST_TOKENS, pace.tokens_in(0.1) or 0)
    wanted = (0.1 - fixed) / per_token
    assert tokens == pytest.approx(max(LEAST_TOKENS, wanted), rel=0.1, abs=2)


def test_steps_without_prompts_say_nothing_of_a_pace() -> None:
    pace = StepPace()
    pace.add(64, 0, 0.05)
    assert pace.tokens_in(0.1) is None
