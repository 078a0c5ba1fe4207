"""Beam search as a pure function, and as sequences of a scheduler that share blocks."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, Search, continuations, searched, unbatched

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import NeverFits, TooManySequences
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.sampling.beam_search import BeamParams, BeamSearch, Hypothesis

ENDS = tuple(range(8))


def config(**changes: int | bool | str) -> SchedulerConfig:
    values = {
        "max_num_seqs": 8, "max_batched_tokens": 64, "max_model_len": 60, "block_size": 4, "num_blocks": 60,
        "prefix_cache": False,
    }  # fmt: skip
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


def params(width: int = 3, max_tokens: int = 12, ends: Sequence[int] = (), **beam: float | bool | str) -> Search:
    return Search(
        SamplingParams(max_tokens=max_tokens, temperature=0.0, stop_token_ids=tuple(ends)),
        BeamParams(width, **beam),  # type: ignore[arg-type]
    )


def every_answer(prompt: list[int], search: Search, branches: int) -> list[tuple[float, tuple[int, ...]]]:
    """All answers there are when each beginning goes on with one of its ``branches`` best tokens, best first."""
    answers = []
    open_: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while open_:
        score, tokens = open_.pop()
        for token, logprob in continuations([*prompt, *tokens], branches):
            longer = (score + logprob, (*tokens, token))
            if token in search.params.stop_token_ids or len(longer[1]) == search.params.max_tokens:
                answers.append((longer[0] / len(longer[1]) ** search.beam.length_penalty, longer[1]))
            else:
                open_.append(longer)
    return sorted(answers, reverse=True)


def test_a_search_wide_enough_to_keep_everything_finds_the_best() -> None:
    search = params(width=40, max_tokens=3, ends=(), length_penalty=1.0)
    found = searched([1, 2, 3], search)
    # Each of 40 beams may go on with any of 50 tokens: what was cut off has a worse beginning than 40 others.
    best = every_answer([1, 2, 3], search, 50)[:5]
    assert [(hypothesis.tokens, hypothesis.score) for hypothesis in found[:5]] == [
        (tokens, pytest.approx(score)) for score, tokens in best
    ]


beam_params = st.builds(
    params,
    width=st.integers(2, 5),
    max_tokens=st.integers(1, 15),
    ends=st.sampled_from([(), (3,), ENDS]),
    length_penalty=st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]),
    early_stopping=st.sampled_from([False, True, "never"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), beam_params)
def test_answers_are_as_many_as_beams_ranked_and_different(prompt: list[int], search: Search) -> None:
    found = searched(prompt, search)
    assert len(found) == search.beam.width == len({hypothesis.tokens for hypothesis in found})
    scores = [hypothesis.score for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    for hypothesis in found:
        total = _logprob(prompt, hypothesis)
        assert hypothesis.score == pytest.approx(total / len(hypothesis.tokens) ** search.beam.length_penalty)
        *beginning, last = hypothesis.tokens
        assert not set(beginning).intersection(search.params.stop_token_ids)
        ended = last in search.params.stop_token_ids
        assert hypothesis.finish_reason is (FinishReason.STOP if ended else FinishReason.LENGTH)
        assert ended or len(hypothesis.tokens) == search.params.max_tokens


def _logprob(prompt: list[int], hypothesis: Hypothesis) -> float:
    return math.fsum(
        dict(continuations([*prompt, *hypothesis.tokens[:place]], 50))[token]
        for place, token in enumerate(hypothesis.tokens)
    )


def test_stopping_early_is_stopping_no_later() -> None:
    """The step of the end: as soon as there are enough, when the best beam is no better, when it can be no better."""
    for start in range(20):
        steps = []
        for early in (True, False, "never"):
            spec = params(width=3, max_tokens=40, ends=ENDS, early_stopping=early)
            search = BeamSearch(spec.beam, spec.params, ())
            count = 0
            while not search.done:
                search.select_branches(
                    [continuations([start, *b.tokens], search.num_continuations) for b in search.live]
                )
                count += 1
            steps.append(count)
        assert steps == sorted(steps)


def test_no_end_before_min_tokens() -> None:
    search = Search(
        SamplingParams(max_tokens=12, temperature=0.0, stop_token_ids=ENDS, min_tokens=6),
        BeamParams(3, early_stopping=True),
    )
    assert min(len(hypothesis.tokens) for hypothesis in searched([5], search)) > 6


def hypotheses(request: Request) -> list[Hypothesis]:
    assert isinstance(request.branch_selector, BeamSearch)
    return request.branch_selector.finished


def add(engine: CheckedEngine, prompt: list[int], search: Search) -> Request:
    return engine.add(prompt, search.params.max_tokens, beam=search.beam, stop_token_ids=search.params.stop_token_ids)


@pytest.mark.parametrize("ends", [(), ENDS])
def test_the_prompt_is_computed_once_and_each_beam_a_token_a_step(ends: tuple[int, ...]) -> None:
    engine = CheckedEngine(config())
    search = params(width=3, max_tokens=8, ends=ends)
    request = add(engine, [1] * 10, search)
    engine.run()
    assert hypotheses(request) == searched([1] * 10, search)
    assert request.output == list(hypotheses(request)[0].tokens)
    first, *others = engine.batches
    assert [item.num_tokens for item in first.scheduled] == [10]
    assert {tuple(item.num_tokens for item in batch.scheduled) for batch in others} == {(1, 1, 1)}
    assert [len(output.request.output) for output in engine.outputs] == [len(request.output)]


def test_beams_share_full_blocks_and_copy_the_last_one() -> None:
    engine = CheckedEngine(config())
    search = params(width=3, max_tokens=8)
    add(engine, [1] * 10, search)
    engine.step()
    assert engine.scheduler.pool.num_used == 3
    batch = engine.scheduler.schedule(engine.now)
    # Two full blocks of all, and of each the one it writes to: one beam keeps the block that the others copied.
    assert engine.scheduler.pool.num_used == 2 + 3
    tables = [item.request.block_table.block_ids for item in batch.scheduled]
    assert len({tuple(table[:2]) for table in tables}) == 1
    assert batch.copies == tuple((tables[2][2], table[2]) for table in tables[:2])
    engine.scheduler.update(batch, engine.model.execute(batch), engine.now)
    engine.run()
    assert engine.scheduler.pool.num_used == 0


def test_a_search_is_preempted_as_a_whole_and_goes_on_from_what_its_beams_share() -> None:
    engine = CheckedEngine(config(num_blocks=15))
    spec = params(width=2, max_tokens=20)
    search = add(engine, [1] * 8, spec)
    other = engine.add([2] * 8, 40)
    engine.run()
    assert engine.scheduler.counters.preemptions > 0
    assert hypotheses(search) == searched([1] * 8, spec)
    assert other.output == unbatched([2] * 8, 40, 60)
    assert engine.scheduler.counters.generation_tokens == 40 + 2 * 20
    assert engine.scheduler.counters.requests_preempted <= 2


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_preempted_every_few_steps(prefix_cache: bool, preemption: str) -> None:
    host = {} if preemption == "recompute" else {"preemption": preemption, "host_blocks": 40}
    engine = CheckedEngine(config(force_preempt_every=5, prefix_cache=prefix_cache, max_num_seqs=12, **host))
    searches = [params(width=width, max_tokens=12, ends=ENDS[:2]) for width in (2, 3, 4)]
    requests = [add(engine, [i] * (5 + i), each) for i, each in enumerate(searches)]
    engine.run()
    assert engine.scheduler.counters.preemptions >= 3
    for i, (request, each) in enumerate(zip(requests, searches, strict=True)):
        assert hypotheses(request) == searched([i] * (5 + i), each)


def test_a_budget_smaller_than_the_beams_makes_them_wait_for_each_other() -> None:
    engine = CheckedEngine(config(max_batched_tokens=2))
    search = params(width=3, max_tokens=6)
    request = add(engine, [1, 2, 3], search)
    engine.run()
    assert hypotheses(request) == searched([1, 2, 3], search)


def test_it_is_admitted_when_there_is_a_slot_for_each_beam() -> None:
    engine = CheckedEngine(config(max_num_seqs=4))
    engine.add([1] * 3, 4)
    engine.add([2] * 3, 8)
    search = add(engine, [3] * 3, params(width=3, max_tokens=4))
    engine.add([4] * 3, 2)
    while not search.finished:
        engine.step()
        others = {item.request for item in engine.batches[-1].scheduled if item.request.leader is not search}
        assert len(others) <= 1 or search.first_scheduled is None
    engine.run()


def test_nobody_ordinary_passes_a_search_that_waits_for_unreserved_slots() -> None:
    engine = CheckedEngine(config(max_num_seqs=4, reserved_slots=1, order="fcfs"))
    before = [engine.add([i] * 3, 4 + 4 * i) for i in (1, 2)]
    engine.step()
    search = add(engine, [5] * 3, params(width=3, max_tokens=4))
    after = engine.add([6] * 3, 2)
    urgent = engine.add([7] * 3, 2, priority=-1)
    engine.step()
    assert urgent.status is RequestStatus.RUNNING
    assert search.status is after.status is RequestStatus.WAITING
    engine.run()
    assert search.first_scheduled is not None
    assert after.first_scheduled is not None
    assert max(request.last_token or 0.0 for request in before) <= search.first_scheduled < after.first_scheduled


def test_a_search_wider_than_the_live_cap_runs_alone() -> None:
    engine = CheckedEngine(config(max_num_seqs=4), live_cap=2)
    before = engine.add([1] * 3, 3)
    search = add(engine, [2] * 3, params(width=4, max_tokens=4))
    after = engine.add([3] * 3, 3)
    engine.run()
    for batch in engine.batches:
        assert len({item.request.leader for item in batch.scheduled} - {before}) <= 1
    assert before.last_token is not None
    assert search.first_scheduled is not None
    assert after.first_scheduled is not None
    assert before.last_token < search.first_scheduled < after.first_scheduled


def test_what_can_never_run_is_refused() -> None:
    engine = CheckedEngine(config(max_num_seqs=4, num_blocks=10))
    with pytest.raises(TooManySequences, match="needs 5 sequences at once, but this engine runs at most 4"):
        add(engine, [1], params(width=5, max_tokens=2))
    # Two shared blocks of the prompt, and three more of each of three beams.
    with pytest.raises(NeverFits, match="can grow to 11 KV blocks"):
        add(engine, [1] * 9, params(width=3, max_tokens=12))
    assert engine.scheduler.counters.rejected == {"too_many_sequences": 1, "never_fits": 1}


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_an_abort_frees_all_beams(steps: int) -> None:
    engine = CheckedEngine(config())
    search = add(engine, [1] * 6, params(width=3, max_tokens=12))
    for _ in range(steps):
        engine.step()
    assert engine.scheduler.abort(search.request_id) is search
    engine.scheduler.check_integrity()
    assert engine.scheduler.pool.num_used == 0
    assert not engine.scheduler.has_work


def test_a_step_that_failed_ends_the_whole_search_once() -> None:
    engine = CheckedEngine(config())
    search = add(engine, [1] * 6, params(width=3, max_tokens=12))
    for _ in range(3):
        engine.step()
    batch = engine.scheduler.schedule(engine.now)
    assert len(batch.scheduled) == 3
    assert engine.scheduler.fail_step(batch) == [search]
    engine.scheduler.check_integrity()
    assert engine.scheduler.pool.num_used == 0


@pytest.mark.parametrize("prefill_first", [False, True])
def test_reserving_admissions_preempt_no_search(prefill_first: bool) -> None:
    for spare in range(0, 12, 3):
        engine = CheckedEngine(config(num_blocks=26 + spare, admission="no-evict", prefill_first=prefill_first))
        requests = [add(engine, [i] * (4 + 3 * i), params(width=2 + i % 3, max_tokens=16)) for i in range(5)]
        requests += [engine.add([9] * (i + 1), 20) for i in range(4)]
        engine.run()
        assert engine.scheduler.counters.preemptions == 0
        assert all(request.finish_reason is FinishReason.LENGTH for request in requests)
