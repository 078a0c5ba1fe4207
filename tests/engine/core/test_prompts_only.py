"""Requests for no tokens: one vector each, from its prompt alone; and prompts that are computed whole."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import FakeModel

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler

MAX_LEN, BLOCK_SIZE = 24, 4
NOTHING = SamplingParams(max_tokens=0)


def config(budget: int, seqs: int, **more: object) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=seqs,
        max_batched_tokens=budget,
        max_model_len=MAX_LEN,
        block_size=BLOCK_SIZE,
        num_blocks=budget // BLOCK_SIZE + seqs,
        **more,
    )


def whole(budget: int, seqs: int, **more: object) -> SchedulerConfig:
    return config(budget, seqs, whole_prompts=True, prefix_cache=False, **more)


def vectors(batch: Batch) -> StepResult:
    """A vector of two numbers that only this prompt has, for each request whose end is computed."""
    ended = [item.request for item in batch.scheduled if item.samples]
    return StepResult([None] * len(batch.scheduled), vectors={r: [len(r.prompt), r.prompt[0]] for r in ended})


def requests(lengths: list[int], generator: Random) -> list[Request]:
    return [
        Request(RequestSpec(f"r{i}", [generator.randrange(9) for _ in range(n)], NOTHING, tenant="ab"[i % 2]))
        for i, n in enumerate(lengths)
    ]


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, MAX_LEN), min_size=1, max_size=30),
    seqs=st.integers(1, 8),
    budget=st.integers(MAX_LEN, 60),
    live=st.integers(1, MAX_LEN),
    order=st.sampled_from(["fcfs", "fair-share", "priority"]),
    prefill_first=st.booleans(),
)
def test_each_prompt_is_computed_once_and_in_one_step(lengths, seqs, budget, live, order, prefill_first):
    scheduler = Scheduler(whole(budget, seqs, order=order, prefill_first=prefill_first), token_budget=live)
    submitted = requests(lengths, Random(1))
    scheduler.add(*submitted)
    now, computed = 0.0, []
    while scheduler.has_work:
        now += 1
        batch = scheduler.schedule(now)
        assert batch.scheduled, "nobody is served"
        assert len(batch.scheduled) <= seqs
        assert batch.num_tokens <= live or len(batch.scheduled) == 1
        assert all(item.start == 0 and item.num_tokens == item.request.num_prompt for item in batch.scheduled)
        outputs = scheduler.update(batch, vectors(batch), now)
        assert [o.request for o in outputs] == [item.request for item in batch.scheduled]
        assert all(o.token is None and o.finish_reason is FinishReason.STOP for o in outputs)
        assert not scheduler.running
        scheduler.check_integrity()
        computed += [item.request for item in batch.scheduled]
    assert sorted(r.request_id for r in computed) == sorted(r.request_id for r in submitted)
    if order == "fcfs":
        assert computed == submitted
    assert all(list(r.vector) == [len(r.prompt), r.prompt[0]] for r in submitted)
    assert scheduler.counters.generation_tokens == 0
    assert scheduler.counters.computed_tokens == sum(lengths)
    assert scheduler.pool.num_used == 0


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(1, MAX_LEN), min_size=1, max_size=12),
    seqs=st.integers(1, 4),
    budget=st.integers(4, 30),
    admission=st.sampled_from(["greedy", "no-evict"]),
    overlap=st.booleans(),
    cache=st.booleans(),
)
def test_a_decoder_computes_prompts_in_pieces_and_shares_their_beginnings(
    lengths, seqs, budget, admission, overlap, cache
):
    settings_ = config(max(budget, seqs), seqs, admission=admission, overlap=overlap, prefix_cache=cache)
    scheduler = Scheduler(settings_.replace(num_blocks=-(-MAX_LEN // BLOCK_SIZE) + 1))
    model = FakeModel(BLOCK_SIZE)
    submitted = requests(lengths, Random(2))
    scheduler.add(*submitted)
    now = 0.0
    while scheduler.has_work:
        now += 1
        assert now < 1000
        batch = scheduler.schedule(now)
        # It compares what the blocks hold with the prompt.
        model.execute(batch)
        scheduler.update(batch, vectors(batch), now)
        scheduler.check_integrity()
    assert all(r.finish_reason is FinishReason.STOP and r.vector for r in submitted)


def test_a_longer_prompt_than_the_live_budget_has_a_step_of_its_own():
    scheduler = Scheduler(whole(40, 8), token_budget=10)
    submitted = requests([4, 20, 4, 4, 3], Random(3))
    scheduler.add(*submitted)
    steps = []
    while scheduler.has_work:
        batch = scheduler.schedule(1.0)
        steps.append([item.num_tokens for item in batch.scheduled])
        scheduler.update(batch, vectors(batch), 1.0)
    assert steps == [[4], [20], [4, 4], [3]]


@pytest.mark.parametrize("order", ["fcfs", "fair-share", "priority"])
@pytest.mark.parametrize("tenants", [("one", "one"), ("one", "two")])
def test_a_short_text_does_not_wait_for_a_call_of_many(order, tenants):
    scheduler = Scheduler(whole(40, 8, order=order))
    many = [Request(RequestSpec(f"m{i}", [1] * 20, NOTHING, tenant=tenants[0], arrival=0.0)) for i in range(50)]
    scheduler.add(*many)
    batch = scheduler.schedule(1.0)
    short = Request(RequestSpec("short", [1] * 5, NOTHING, tenant=tenants[1], arrival=1.0))
    scheduler.add(short)
    scheduler.update(batch, vectors(batch), 2.0)
    assert short in [item.request for item in scheduler.schedule(2.0).scheduled]


@pytest.mark.parametrize("order", ["fcfs", "fair-share", "priority"])
def test_short_texts_that_keep_coming_do_not_starve_a_call_of_many(order):
    scheduler = Scheduler(whole(40, 8, order=order))
    many = [Request(RequestSpec(f"m{i}", [1] * 20, NOTHING, arrival=0.0)) for i in range(10)]
    scheduler.add(*many)
    steps = 0
    while not all(request.finished for request in many):
        scheduler.add(
            *(Request(RequestSpec(f"s{steps}-{i}", [1] * 10, NOTHING, arrival=float(steps))) for i in range(4))
        )
        batch = scheduler.schedule(float(steps))
        scheduler.update(batch, vectors(batch), float(steps))
        steps += 1
        assert steps <= 12, "200 tokens are due after 200 others at most"


def test_what_ended_meanwhile_gets_no_vector():
    scheduler = Scheduler(whole(40, 8))
    gone, stays = requests([4, 5], Random(4))
    scheduler.add(gone, stays)
    batch = scheduler.schedule(1.0)
    scheduler.abort("r0")
    outputs = scheduler.update(batch, vectors(batch), 2.0)
    assert [o.request for o in outputs] == [stays]
    assert gone.vector == ()
    assert gone.finish_reason is FinishReason.ABORT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_batched_tokens": MAX_LEN - 1}, "must be at least 24, the longest prompt"),
        ({"overlap": True}, "nothing to overlap"),
        ({"prefix_cache": True}, "or to reuse"),
    ],
)
def test_settings_that_contradict_whole_prompts(changes, message):
    with pytest.raises(ValueError, match=message):
        whole(40, 4).replace(**changes)


def test_a_request_for_tokens_is_refused_where_prompts_are_computed_whole():
    with pytest.raises(ValueError, match="nothing after them"):
        Scheduler(whole(40, 4)).add(Request(RequestSpec("r", [1], SamplingParams(max_tokens=1))))
