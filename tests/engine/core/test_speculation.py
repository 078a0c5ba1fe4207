"""Proposed tokens change when a request's tokens come, and nothing else, however often they are right."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import VOCABULARY, CheckedEngine, next_token
from tests.engine.core.test_invariants import check_trace
from tests.engine.core.traces import NUM_TRACES, Arrival, arrivals, caps, configs, rush

from paternoster_engine.core.batch import Batch, ScheduledRequest, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.drafting.draft_state import MAX_PROPOSED, DraftState, worthwhile_length
from paternoster_engine.core.drafting.ngram_lookup import NGRAM_LENGTH, NgramLookup
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.speculation import LOOKUP
from paternoster_engine.core.step_work import StepWork
from paternoster_engine.core.waiting.fair_share import FairShareQueue


class Guesses(NgramLookup):
    """What the model will say, but for each token that a die says is wrong."""

    def __init__(self, rate: float, seed: int) -> None:
        super().__init__()
        self._rate, self._dice = rate, Random(seed)

    def propose(self, sequence: Any, most: int) -> list[int]:
        tokens = sequence.slice_tokens(0, sequence.num_tokens)
        proposed: list[int] = []
        for _ in range(self._dice.randint(0, most)):
            right = next_token([*tokens, *proposed])
            proposed.append(right if self._dice.random() < self._rate else (right + 1) % VOCABULARY)
        return proposed


def guessing(rate: float) -> type[CheckedEngine]:
    """An engine whose requests propose, wherever there is room, tokens that are right with likelihood ``rate``."""

    class Engine(CheckedEngine):
        def __init__(self, config: SchedulerConfig, live_cap: int | None = None) -> None:
            super().__init__(config.model_copy(update={"speculative": "ngram"}), live_cap)

        def add(self, prompt: list[int], *args: Any, **kwargs: Any) -> Request:
            request = super().add(prompt, *args, **kwargs)
            lookup = Guesses(rate, int(request.request_id[1:]))
            request.drafting = DraftState({LOOKUP: 1.0}, 10**9, lookup=lookup)
            return request

        def step(self) -> Batch:
            batch = super().step()
            for request in self.scheduler.running:
                if request.drafting is not None:
                    request.drafting.rates[LOOKUP] = 1.0
            return batch

    return Engine


@settings(max_examples=150, deadline=None)
@given(configs, arrivals, caps, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_any_trace_with_proposals(
    config: SchedulerConfig, traffic: list[Arrival], caps: list[int], rate: float
) -> None:
    """All that holds without them: outputs, budget, blocks, sharing, admission, no preemption by no-evict."""
    check_trace(config, traffic, caps, guessing(rate))


def test_any_rush_with_proposals() -> None:
    for seed in range(NUM_TRACES // 4):
        check_trace(*rush(seed), guessing((0.0, 0.5, 0.9, 1.0)[seed % 4]))


def config(**changes: Any) -> SchedulerConfig:
    sizes = {"max_num_seqs": 4, "max_batched_tokens": 64, "max_model_len": 128, "block_size": 4, "num_blocks": 200}
    return SchedulerConfig(**{**sizes, **changes})


@pytest.mark.parametrize(("rate", "most_steps"), [(1.0, 6), (0.0, 40)])
def test_steps_are_saved_where_proposals_are_right(rate: float, most_steps: int) -> None:
    engine = guessing(rate)(config())
    request = engine.add([1, 2, 3], 40)
    engine.run()
    counters = engine.scheduler.counters
    assert len(engine.batches) <= most_steps
    assert counters.generation_tokens == len(request.output) == 40
    assert [output.token for output in engine.outputs] == request.output
    assert (counters.accepted_tokens[LOOKUP] == 0) == (rate == 0.0)
    assert counters.recomputed_tokens == 0
    if rate == 1.0:
        assert counters.accepted_tokens == counters.proposed_tokens
        assert sum(counters.accepted_at.values()) == counters.accepted_tokens[LOOKUP]
        assert len(engine.batches) == 40 - counters.accepted_tokens[LOOKUP]


def test_a_rejected_token_is_never_in_the_prefix_cache() -> None:
    """What was proposed and wrong is no beginning that another request finds; what is right is one."""
    engine = guessing(0.0)(config(prefix_cache=True))
    first = engine.add([1, 2, 3], 30)
    wrong = set()
    while engine.scheduler.has_work:
        for item in engine.step().scheduled:
            if item.proposed:
                wrong.add((*item.request.slice_tokens(0, item.known_stop), *item.proposed))
    assert wrong
    for tokens in wrong:
        right = next(i for i, token in enumerate(tokens) if token != [*first.prompt, *first.output][i])
        found = engine.scheduler.kv.find_prefix(
            Request(RequestSpec("other", [*tokens, 0], SamplingParams(max_tokens=1)))
        )
        assert len(found) * 4 <= right
    first_tokens = [*first.prompt, *first.output]
    again = engine.scheduler.kv.find_prefix(Request(RequestSpec("again", first_tokens, SamplingParams(max_tokens=1))))
    assert len(again) == (len(first_tokens) - 1) // 4


def test_nobody_is_preempted_for_a_proposal() -> None:
    # Together they fill the pool to the last block.
    engine = guessing(1.0)(config(num_blocks=16, max_num_seqs=2, prefix_cache=False))
    for _ in range(2):
        engine.add([1, 2, 3], 29)
    engine.run()
    assert engine.scheduler.counters.preemptions == 0


def test_a_prompt_is_not_kept_waiting_by_proposals() -> None:
    engine = guessing(1.0)(config(max_batched_tokens=8, prefix_cache=False))
    engine.add([1, 2, 3], 40)
    engine.step()
    engine.add([5] * 20, 4)
    first = engine.step()
    assert [item.num_tokens for item in first.scheduled] == [1, 7]


def test_a_proposal_ends_before_a_token_that_ends_the_request_and_before_its_longest() -> None:
    engine = guessing(1.0)(config())
    request = engine.add([1, 2, 3], 5, stop_token_ids=tuple(range(VOCABULARY)))
    assert not any(item.proposed for item in engine.step().scheduled)
    assert request.finished
    short = engine.add([1, 2, 3], 3)
    engine.run()
    assert all(len(item.proposed) <= 2 for batch in engine.batches for item in batch.scheduled)
    assert len(short.output) == 3


def test_tokens_after_one_that_ends_the_request_are_dropped() -> None:
    engine = CheckedEngine(config())
    request = engine.add([1, 2, 3], 10, stop_token_ids=(9,))
    item = ScheduledRequest(request, 0, 6, True, (8, 9, 7))
    engine.scheduler.schedule(0)
    request.drafting = DraftState({LOOKUP: 1.0}, 0, LOOKUP)
    outputs = engine.scheduler.update(Batch(1, (item,)), StepResult([8], further={request: [9, 7, 6]}), 1.0)
    assert [output.token for output in outputs] == request.output == [8, 9]
    assert request.finished


def test_what_cannot_be_followed_is_asked_for_again() -> None:
    """Where nothing could be sampled after an accepted token, that token is computed once more."""
    request = Request(RequestSpec("r", [1], SamplingParams(max_tokens=9)))
    item = ScheduledRequest(request, 0, 4, True, (5, 6, 7))
    assert StepResult(further={request: [6, None, 8]}).accepted_tokens(item, 5) == [5, 6]
    assert StepResult(further={request: [6, 7, 8]}).accepted_tokens(item, 5) == [5, 6, 7, 8]
    assert StepResult(further={request: [6, 7, 8]}).accepted_tokens(item, 4) == [4]
    assert StepResult().accepted_tokens(item, 5) == [5]


def test_rejected_tokens_are_charged_to_the_tenant() -> None:
    charged = FairShareQueue({})
    request = Request(RequestSpec("r", [1], SamplingParams(max_tokens=9), tenant="a"))
    charged.count_rejected(request, 3)
    assert charged.counters.by_tenant == {"a": 3.0}


def test_depth_falls_with_load_and_with_rate() -> None:
    assert worthwhile_length(0.5, 1) >= 3
    assert worthwhile_length(0.7, 64) == 0
    assert worthwhile_length(0.5, 64) == 0
    assert worthwhile_length(1.0, 10**6) == MAX_PROPOSED
    assert all(
        worthwhile_length(r / 10, load) >= worthwhile_length(r / 10, load + 1)
        for r in range(1, 10)
        for load in range(1, 80)
    )


def test_random_tokens_cost_few_proposals() -> None:
    """A text that seems to repeat itself and does not: proposals end, and are tried again now and then."""
    engine = guessing(0.0)(config(max_model_len=1024, num_blocks=400))
    request = CheckedEngine.add(engine, [1, 2, 3], 900)
    request.drafting = DraftState({LOOKUP: 0.5}, 67, lookup=Guesses(0.0, 1))
    while engine.scheduler.has_work:
        CheckedEngine.step(engine)
    assert engine.scheduler.counters.proposed_tokens[LOOKUP] < 0.06 * 900


class Sequence:
    def __init__(self, tokens: list[int]) -> None:
        self.all = tokens

    @property
    def num_tokens(self) -> int:
        return len(self.all)

    def slice_tokens(self, start: int, stop: int) -> list[int]:
        return self.all[start:stop]


@given(st.lists(st.integers(0, 2), max_size=60), st.lists(st.integers(1, 5), max_size=30), st.integers(1, 8))
def test_lookup_is_a_search_for_the_last_place(tokens: list[int], cuts: list[int], most: int) -> None:
    """However many tokens come between two questions; what ends the sequence goes on from its own beginning."""
    lookup, end = NgramLookup(), 0
    for cut in cuts:
        end = min(len(tokens), end + cut)
        prefix = tokens[:end]
        places = (
            [i for i in range(NGRAM_LENGTH, end) if prefix[i - NGRAM_LENGTH : i] == prefix[end - NGRAM_LENGTH :]]
            if end > NGRAM_LENGTH
            else []
        )
        expected: list[int] = []
        if places:
            period = prefix[places[-1] :]
            expected = (period * most)[:most]
        assert lookup.propose(Sequence(prefix), most) == expected


def test_a_verified_token_is_a_decode_and_its_proposals_are_prefill() -> None:
    request = Request(RequestSpec("r", [0] * 8, SamplingParams(max_tokens=9)))
    work = StepWork.from_batch(Batch(1, (ScheduledRequest(request, 7, 4, True, (1, 2, 3)),)))
    assert (work.decode_sequences, work.prefill_tokens, work.kv_tokens, work.prefill_pairs) == (1, 3, 11, 9 + 10 + 11)
