"""A draft model proposes what pays, reads each token it has not read, and changes nothing but when tokens come."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import VOCABULARY, CheckedEngine, next_token
from tests.engine.core.test_invariants import check_trace
from tests.engine.core.traces import Arrival, arrivals, caps, configs, rush

from paternoster_engine.core.batch import Batch
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.drafting.draft_state import MAX_PROPOSED, OVERHEAD_TOKENS, DraftState, best_length
from paternoster_engine.core.drafting.ngram_lookup import NgramLookup
from paternoster_engine.core.model_drafts import DRAFT, DraftTask
from paternoster_engine.core.request import Request
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.speculation import LOOKUP


class FakeDrafter:
    """Says what the model will, but for each token that a die says is wrong.

    Its memory is a dictionary of (block, offset) -> (position, token): what it reads there must be what was written.
    """

    def __init__(self, block_size: int, rate: float = 1.0, cost: float = 0.0) -> None:
        self.cost = cost
        self.tasks: list[DraftTask] = []
        self.spent = 0.0
        """In tokens of a step of the model."""
        self._block_size, self.rate, self._dice = block_size, rate, Random(1)
        self._written: dict[tuple[int, int], tuple[int, int]] = {}

    def propose(self, tasks: Sequence[DraftTask]) -> list[list[int]]:
        self.tasks += tasks
        return [self._one(task) for task in tasks]

    def _one(self, task: DraftTask) -> list[int]:
        request, start, stop, depth = task
        assert 0 <= start < stop <= request.num_tokens
        assert depth == 0 or stop == request.num_tokens
        tokens = request.slice_tokens(0, stop)
        self._write(request, start, tokens)
        places = [self._place(request, position) for position in range(stop)]
        assert [self._written.get(place) for place in places] == list(enumerate(tokens)), "it reads what it never wrote"
        proposed: list[int] = []
        for _ in range(depth):
            right = next_token([*tokens, *proposed])
            proposed.append(right if self._dice.random() < self.rate else (right + 1) % VOCABULARY)
        self._write(request, stop, [*tokens, *proposed[:-1]])
        self.spent += self.cost * (max(1, depth) * OVERHEAD_TOKENS + stop - start + max(0, depth - 1)) + depth
        return proposed

    def _write(self, request: Request, start: int, tokens: list[int]) -> None:
        for position in range(start, len(tokens)):
            self._written[self._place(request, position)] = position, tokens[position]

    def _place(self, request: Request, position: int) -> tuple[int, int]:
        block = request.block_table.block_ids[position // self._block_size]
        assert block, "the null block is written to"
        return block, position % self._block_size


class DraftingEngine(CheckedEngine):
    """With a draft model."""

    def __init__(self, config: SchedulerConfig, live_cap: int | None = None, **drafter: float) -> None:
        super().__init__(config, live_cap)
        self.drafter = FakeDrafter(config.block_size, **drafter)
        config = config.model_copy(update={"speculative": "draft"})
        self.scheduler = Scheduler(config, live_cap, drafter=self.drafter)


def drafting(rate: float) -> type[CheckedEngine]:
    """An engine whose draft model proposes wherever there is room, and is right with likelihood ``rate``."""

    class Engine(DraftingEngine):
        def __init__(self, config: SchedulerConfig, live_cap: int | None = None) -> None:
            super().__init__(config, live_cap, rate=rate)

        def step(self) -> Batch:
            batch = super().step()
            for request in self.scheduler.running:
                if request.drafting is not None:
                    request.drafting.rates[DRAFT] = 1.0
            return batch

    return Engine


def without_windows(config: SchedulerConfig) -> bool:
    """Beside windows there is no draft model."""
    return config.windows == (None,)


@settings(max_examples=80, deadline=None)
@given(configs.filter(without_windows), arrivals, caps, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_any_trace_with_a_draft_model(
    config: SchedulerConfig, traffic: list[Arrival], caps: list[int], rate: float
) -> None:
    """All that holds without it; and it reads of each request's blocks what it has written for that request."""
    check_trace(config, traffic, caps, drafting(rate))


def test_any_rush_with_a_draft_model() -> None:
    for seed in range(120):
        config, traffic, caps = rush(seed)
        if without_windows(config):
            check_trace(config, traffic, caps, drafting((0.0, 0.5, 0.9, 1.0)[seed % 4]))


def config(**changes: Any) -> SchedulerConfig:
    sizes = {"max_num_seqs": 4, "max_batched_tokens": 64, "max_model_len": 128, "block_size": 4, "num_blocks": 200}
    return SchedulerConfig(**{**sizes, **changes})


@pytest.mark.parametrize(("rate", "most_steps"), [(1.0, 5), (0.0, 40)])
def test_steps_are_saved_where_it_is_right(rate: float, most_steps: int) -> None:
    engine = DraftingEngine(config(), rate=rate, cost=0.1)
    request = engine.add([1, 2, 3], 40)
    engine.run()
    counters = engine.scheduler.counters
    assert len(engine.batches) <= most_steps
    assert [output.token for output in engine.outputs] == request.output
    assert counters.proposed_tokens[DRAFT] > 0
    assert counters.accepted_tokens[DRAFT] == rate * counters.proposed_tokens[DRAFT]
    # Each token is read once, but for the proposals that proved right, which it has read as it made them.
    reads = [task.stop - task.start for task in engine.drafter.tasks]
    assert reads[0] == 3
    assert all(read <= 2 for read in reads[1:3])


def test_what_a_preemption_took_is_read_again() -> None:
    engine = DraftingEngine(config(force_preempt_every=5, prefix_cache=False), cost=0.1)
    request = engine.add([1] * 20, 100)
    engine.run()
    assert request.num_preemptions > 0
    again = [task for task in engine.drafter.tasks[1:] if task.start == 0]
    assert again


def test_what_the_prefix_cache_holds_is_read_once() -> None:
    """Prompts and answers, with the tokens of these that were proposed and accepted."""
    engine = DraftingEngine(config(), cost=0.1)
    first = engine.add([1] * 20, 40)
    engine.run()
    again = engine.add([*first.prompt, *first.output, 5, 5, 5, 5, 5], 30)
    engine.run()
    task = next(task for task in engine.drafter.tasks if task.request is again)
    assert task.start == (first.num_tokens - 1) // 4 * 4


def test_a_preemption_takes_nothing_that_the_prefix_cache_gives_back() -> None:
    engine = DraftingEngine(config(force_preempt_every=5), cost=0.1)
    request = engine.add([1] * 20, 100)
    engine.run()
    assert request.num_preemptions > 0
    read = sum(task.stop - task.start for task in engine.drafter.tasks)
    # Of each time no more than what is in no full block, and what was just sampled.
    assert read <= request.num_tokens + 2 * 4 * request.num_preemptions


def test_a_step_reads_no_more_than_its_budget_has_left() -> None:
    engine = DraftingEngine(config(max_batched_tokens=9, max_model_len=512), cost=0.01)
    engine.add([1] * 40, 200)
    engine.run()
    tasks = engine.drafter.tasks
    assert all(task.stop - task.start + task.depth <= 8 for task in tasks)
    assert [task.depth for task in tasks][:2] == [0, 0]
    assert [task.start for task in tasks][:3] == [0, tasks[0].stop, tasks[1].stop]
    assert engine.scheduler.counters.accepted_tokens[DRAFT] > 0


def test_a_long_text_is_not_read_for_few_tokens() -> None:
    engine = DraftingEngine(config(max_model_len=512), cost=0.3)
    engine.add([1] * 400, 6)
    engine.run()
    assert not engine.drafter.tasks
    engine.add([1] * 30, 90)
    engine.run()
    assert engine.drafter.tasks


def test_where_answers_end_early_a_long_text_is_not_read_for_what_it_may_be() -> None:
    """``max_tokens`` says little of an answer's length: those before it say more."""
    engine = DraftingEngine(config(max_model_len=512, prefix_cache=False), cost=0.3)
    for _ in range(3):
        engine.add([1] * 3, 2)
        engine.run()
    long = engine.add([1] * 300, 200)
    for _ in range(9):
        engine.step()
    assert len(long.output) > 2
    assert not any(task.request is long for task in engine.drafter.tasks)


@pytest.mark.parametrize(("rate", "cost"), [(0.0, 0.3), (0.0, 0.05), (0.3, 0.5), (1.0, 1.5)])
@pytest.mark.parametrize("at_once", [1, 4])
def test_what_does_not_pay_costs_little(rate: float, cost: float, at_once: int) -> None:
    """In the tokens that steps take: 3 % at most, after the first answers, from which it is learned."""
    engine = DraftingEngine(config(max_model_len=512, num_blocks=1000, prefix_cache=False), rate=rate, cost=cost)

    def steps() -> float:
        return sum(OVERHEAD_TOKENS + batch.num_tokens for batch in engine.batches)

    before, spent = 0.0, 0.0
    for answer in range(5 * at_once):
        # Of other requests: the fake model says the same to the same prompt.
        engine.add([answer, 2, 3], 100)
        if answer % at_once == at_once - 1:
            engine.run()
        if answer < at_once:
            before, spent = steps(), engine.drafter.spent
    gained = engine.scheduler.counters.accepted_tokens[DRAFT]
    assert engine.drafter.spent - spent <= 0.03 * (steps() - before) + gained * OVERHEAD_TOKENS


def test_it_is_tried_again_when_it_gets_better() -> None:
    engine = DraftingEngine(config(max_model_len=512, prefix_cache=False), rate=0.0, cost=0.2)
    accepted = []
    for answer in range(16):
        if answer == 8:
            engine.drafter.rate = 1.0
        engine.add([answer, 2, 3], 100)
        engine.run()
        accepted.append(engine.scheduler.counters.accepted_tokens[DRAFT])
    assert accepted[7] == 0
    assert accepted[15] - accepted[14] > 60


def test_what_stood_there_before_is_proposed_once_it_is_known_to_be_right() -> None:
    """Though the draft model is right as well, and was thought to be better: it costs more."""
    engine = DraftingEngine(config(max_model_len=512), cost=0.2)
    request = CheckedEngine.add(engine, [1, 2, 3], 100)
    request.drafting = DraftState({LOOKUP: 0.3, DRAFT: 0.9}, 10**9, lookup=Knows())
    engine.run()
    counters = engine.scheduler.counters
    assert counters.accepted_tokens[DRAFT] > 0
    assert counters.accepted_tokens[LOOKUP] > 50


def test_the_draft_model_is_asked_where_what_stood_there_before_is_wrong() -> None:
    engine = DraftingEngine(config(max_model_len=512), cost=0.2)
    request = CheckedEngine.add(engine, [1, 2, 3], 100)
    request.drafting = DraftState({LOOKUP: 0.5, DRAFT: 0.8}, 10**9, lookup=Knows(wrong=1))
    engine.run()
    counters = engine.scheduler.counters
    assert counters.proposed_tokens[LOOKUP] <= 3
    assert counters.accepted_tokens[DRAFT] > 80


class Knows(NgramLookup):
    """What the model will say, or another token."""

    def __init__(self, wrong: int = 0) -> None:
        super().__init__()
        self._wrong = wrong

    def propose(self, sequence: Any, most: int) -> list[int]:
        tokens = sequence.slice_tokens(0, sequence.num_tokens)
        for _ in range(most):
            tokens.append((next_token(tokens) + self._wrong) % VOCABULARY)
        return tokens[-most:]


class Refuses:
    """A matcher under which no token may be proposed."""

    fault = None
    seconds = 0.0
    max_proposed = 16

    def allowed_mask(self, row: Any) -> bytes:
        return b""

    def is_unconstrained(self, row: Any) -> bool:
        return True

    def forced_tokens(self, row: Any) -> list[int]:
        return []

    def count_accepted(self, row: Any, tokens: Sequence[int]) -> int:
        return 0


def test_what_may_never_be_proposed_is_soon_not_asked_for() -> None:
    engine = DraftingEngine(config(), cost=0.1)
    request = engine.add([1, 2, 3], 60)
    request.matcher = Refuses()
    engine.run()
    assert 0 < len(engine.drafter.tasks) < 15
    assert len(engine.batches) == 60


class SlowMasks(Refuses):
    """A matcher that lets everything pass, and has masks for ``max_proposed`` tokens in a step."""

    def __init__(self, max_proposed: int) -> None:
        self.max_proposed = max_proposed

    def count_accepted(self, row: Any, tokens: Sequence[int]) -> int:
        return len(tokens)


@pytest.mark.parametrize("most", [0, 2])
def test_no_more_is_proposed_than_there_is_time_for_masks(most: int) -> None:
    engine = DraftingEngine(config(), cost=0.1)
    request = engine.add([1, 2, 3], 60)
    request.matcher = SlowMasks(most)
    engine.run()
    assert max(len(item.proposed) for batch in engine.batches for item in batch.scheduled) == most


@given(st.floats(0, 1), st.floats(0, 2))
def test_the_best_depth_takes_least_time_a_token(rate: float, price: float) -> None:
    def time(depth: int) -> float:
        return (1 + depth * price) / sum(rate**place for place in range(depth + 1))

    depth, saved = best_length(rate, price)
    assert 1 - saved == pytest.approx(time(depth))
    assert time(depth) <= min(map(time, range(MAX_PROPOSED + 1))) + 1e-9
    assert (depth > 0) == (saved > 0)
    assert depth == 0 or rate > price
