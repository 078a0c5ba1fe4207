"""Prompts share a step by virtual time: short ones do not wait for long ones, nor long ones for ever for short ones."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler

BUDGET = 512
NUM_DECODING = 4
ORDERS = [
    ("fcfs", "", 0),
    ("fair-share", "", 0),
    ("fair-share", "other", 0),
    ("priority", "", 0),
    ("priority", "", -1),
]
"""Order, and tenant and class of the short one; those of the long one are "" and 0."""


class Steps:
    """A scheduler whose steps sample tokens of no meaning."""

    def __init__(self, **changes: object) -> None:
        values = {"max_num_seqs": 16, "max_batched_tokens": BUDGET, "num_blocks": 8000, **changes}
        self.scheduler = Scheduler(SchedulerConfig(max_model_len=50_000, block_size=32, **values))  # type: ignore[arg-type]
        self.now = 0
        self.batches: list[Batch] = []

    def add(self, name: str, num_prompt: int, max_tokens: int = 1, *, first: int = 1, **more: object) -> Request:
        """``first``: its first token; prompts with the same one have the same beginning."""
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        prompt = [first + i % 1000 for i in range(num_prompt)]
        request = Request(RequestSpec(name, prompt, params, arrival=self.now, **more))  # type: ignore[arg-type]
        self.scheduler.add(request)
        return request

    def step(self) -> Batch:
        self.now += 1
        batch = self.scheduler.schedule(self.now)
        self.batches.append(batch)
        tokens = [
            i if item.samples and item.request.params.max_tokens else None for i, item in enumerate(batch.scheduled)
        ]
        vectors = {
            item.request: [0.0] for item in batch.scheduled if item.samples and not item.request.params.max_tokens
        }
        self.scheduler.update(batch, StepResult(tokens, vectors=vectors), self.now)
        return batch

    def until_first_tokens(self, *requests: Request) -> list[int]:
        """Steps from the arrival of each to its first token."""
        while any(request.first_token is None for request in requests):
            self.step()
        return [int((request.first_token or 0) - request.spec.arrival) for request in requests]


def _beside_decoding(**changes: object) -> Steps:
    steps = Steps(**changes)
    for number in range(NUM_DECODING):
        steps.add(f"decodes-{number}", 8, 500, first=number)
    steps.step()
    return steps


@pytest.mark.parametrize("length", [2_000, 4_000, 16_000, 32_000])
@pytest.mark.parametrize(("order", "tenant", "priority"), ORDERS)
@pytest.mark.parametrize("max_tokens", [0, 1])
def test_a_short_prompt_passes_a_long_one(length: int, order: str, tenant: str, priority: int, max_tokens: int) -> None:
    """Within 2 steps, and the long one's first token comes at most 5 % later; texts to embed like any other prompt."""
    alone = _beside_decoding(order=order)
    (before,) = alone.until_first_tokens(alone.add("long", length, max_tokens, first=2000))
    steps = _beside_decoding(order=order)
    long = steps.add("long", length, max_tokens, first=2000)
    steps.step()
    short = steps.add("short", 32, max_tokens, first=4000, tenant=tenant, priority=priority)
    waited, after = steps.until_first_tokens(short, long)
    assert waited <= 2
    assert after <= max(before + 1, 1.05 * before)


@pytest.mark.parametrize(("order", "tenant", "priority"), ORDERS)
def test_a_short_prompt_passes_long_ones_that_run_and_wait(order: str, tenant: str, priority: int) -> None:
    steps = _beside_decoding(order=order)
    longs = [steps.add(f"long-{i}", 16_000, first=2000 + i) for i in range(3)]
    steps.step()
    short = steps.add("short", 32, 40, first=4000, tenant=tenant, priority=priority)
    waited, *ends = steps.until_first_tokens(short, *longs)
    assert waited <= 2
    assert ends == sorted(ends)
    assert ends[0] <= 33, "those of one length are computed one after the other"
    while not short.finished:
        steps.step()
    first, last = int(short.first_token or 0), int(short.last_token or 0)
    assert last - first == 39, "a token in each step, beside the prompts"


@pytest.mark.parametrize("order", ["fcfs", "fair-share", "priority"])
def test_short_prompts_cannot_starve_a_long_one(order: str) -> None:
    """They take all they can: a long prompt is passed by no more tokens than it has itself."""
    steps = Steps(order=order)
    long = steps.add("long", 8_000, first=2000)
    for number in range(200):
        for each in range(4):
            steps.add(f"short-{number}-{each}", 200, first=4000 + 10 * number + each, tenant=f"t{each}")
        steps.step()
        if long.first_token is not None:
            break
    assert long.first_token is not None
    assert steps.scheduler.counters.computed_tokens <= 2 * 8_000 + BUDGET


def test_a_beginning_in_the_cache_makes_a_prompt_short() -> None:
    steps = _beside_decoding()
    steps.until_first_tokens(steps.add("before", 6_000, first=3000))
    long = steps.add("long", 32_000, first=2000)
    steps.step()
    again = steps.add("again", 6_000, first=3000)
    assert steps.until_first_tokens(again) == [1]
    assert long.first_token is None


def test_a_prompt_that_awaits_its_prefix_holds_nobody_back() -> None:
    """It shares what the long one computes, so it goes on from there; the step is full all the while."""
    steps = Steps()
    long = steps.add("long", 16_000, first=2000)
    steps.step()
    donor = steps.add("same beginning", 1_000, first=2000)
    other = steps.add("short", 32, first=4000)
    waited, _, _ = steps.until_first_tokens(other, donor, long)
    assert waited <= 2
    assert donor.num_found >= 960
    assert all(batch.num_tokens == BUDGET for batch in steps.batches[:31])


@pytest.mark.parametrize("changes", [{"prefill_first": True}, {"speculative": "ngram"}, {"admission": "no-evict"}])
def test_under_other_settings(changes: dict[str, object]) -> None:
    steps = Steps(**changes)
    long = steps.add("long", 16_000, first=2000)
    steps.step()
    waited, after = steps.until_first_tokens(steps.add("short", 32, first=4000), long)
    assert waited <= 2
    assert after <= 33


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 400), st.sampled_from("ab")), min_size=1, max_size=14
    ),
    budgets=st.lists(st.integers(1, 64), min_size=1, max_size=5),
    caps=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    order=st.sampled_from(["fcfs", "fair-share", "priority"]),
    overlap=st.booleans(),
)
def test_no_token_of_the_budget_is_left_while_a_running_prompt_has_some_to_compute(
    prompts: Sequence[tuple[int, int, str]], budgets: list[int], caps: list[int], order: str, overlap: bool
) -> None:
    """Whatever passes, and however cap and budget move; and every prompt is served in the end."""
    steps = Steps(max_num_seqs=8, max_batched_tokens=64, order=order, overlap=overlap, prefix_cache=False)
    pending = sorted(enumerate(prompts), key=lambda each: each[1][0])
    scheduler, number = steps.scheduler, 0
    while pending or scheduler.has_work:
        assert number < 5_000
        while pending and pending[0][1][0] <= number:
            index, (_, length, tenant) = pending.pop(0)
            steps.add(f"r{index}", length, 3, first=1000 * index, tenant=tenant, priority=index % 2)
        scheduler.live_cap = caps[number % len(caps)]
        scheduler.token_budget = budgets[number % len(budgets)]
        number += 1
        before = {request: request.num_expected - request.num_computed for request in scheduler.running}
        budget = max(scheduler.token_budget, len(before))
        batch = steps.step()
        served = {item.request: item.num_tokens for item in batch.scheduled}
        assert batch.num_tokens <= budget
        unmet = [
            request
            for request, count in before.items()
            if count > max(1, served.get(request, 0)) and request not in batch.preempted
        ]
        assert not unmet or batch.num_tokens == budget


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 120), min_size=2, max_size=8), st.integers(4, 24), st.booleans())
def test_answers_do_not_depend_on_who_passes(lengths: list[int], budget: int, cache: bool) -> None:
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=4,
            max_batched_tokens=budget,
            max_model_len=130,
            block_size=4,
            num_blocks=80,
            prefix_cache=cache,
        )
    )
    requests = []
    for length in lengths:
        requests.append(engine.add([i % 5 for i in range(length)], 6))
        engine.step()
    engine.run()
    assert [r.output for r in requests] == [unbatched(r.prompt, 6, 130) for r in requests]
