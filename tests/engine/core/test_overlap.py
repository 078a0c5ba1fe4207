"""Steps planned ahead: every invariant holds, and what requests say does not depend on it."""

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched
from tests.engine.core.overlapped_engine import OverlappedEngine
from tests.engine.core.test_invariants import check_trace
from tests.engine.core.traces import MAX_LEN, NUM_TRACES, Arrival, arrivals, caps, configs, fits, play, rush

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.sampling.beam_search import BeamSearch, Hypothesis

either = pytest.mark.parametrize("chaining", [False, True])
"""Whether a step is submitted before or after the tokens of the one ahead of it are known."""


@either
@settings(max_examples=NUM_TRACES // 2, deadline=None)
@given(config=configs, traffic=arrivals, caps=caps)
def test_any_trace_under_any_settings(
    chaining: bool, config: SchedulerConfig, traffic: list[Arrival], caps: list[int]
) -> None:
    """Preemptions, swaps, aborts, deadlines, stop tokens, forks and beams, with a step under way all the time."""
    check_trace(config, traffic, caps, partial(OverlappedEngine, chaining=chaining))


@either
def test_any_rush_under_any_settings(chaining: bool) -> None:
    for seed in range(NUM_TRACES // 4):
        check_trace(*rush(seed), partial(OverlappedEngine, chaining=chaining))


def test_tokens_reasons_and_blocks_are_those_of_a_plain_engine() -> None:
    for seed in range(NUM_TRACES // 4):
        config, traffic, caps = rush(seed)
        # The engine with overlap has a larger pool where there are windows, and both must be asked the same.
        fitting = [arrival for arrival in traffic if fits(config, arrival)]
        traffic = [replace(arrival, abort_after=None, patience=None) for arrival in fitting]
        results = []
        for make in (CheckedEngine, OverlappedEngine, partial(OverlappedEngine, chaining=True)):
            engine = make(config)
            results.append([(r.output, r.finish_reason, _found(r)) for _, r in play(engine, traffic, caps)])
            assert engine.scheduler.pool.num_available == engine.scheduler.config.num_blocks
        assert results[0] == results[1] == results[2], f"seed {seed}"


@either
def test_i18_nobody_is_ever_preempted(chaining: bool) -> None:
    for seed in range(chaining, NUM_TRACES // 4, 2):
        config, traffic, _ = rush(seed)
        changes: dict[str, Any] = {"order": "fcfs", "pause_lower_classes": False, "reserved_slots": 0}
        config = config.replace(admission="no-evict", preemption="recompute", host_blocks=0, **changes)
        engine = OverlappedEngine(config, chaining=chaining)
        play(engine, traffic, [])
        assert engine.scheduler.counters.preemptions == 0, f"seed {seed}"


@either
@settings(max_examples=NUM_TRACES // 5, deadline=None)
@given(seed=st.integers(0, 10_000), broken=st.sets(st.integers(2, 40), min_size=1, max_size=6))
def test_a_failed_step_leaves_nothing_wrong_behind(chaining: bool, seed: int, broken: set[int]) -> None:
    """Its requests end with an error, and no request goes on from what it should have computed, saved or copied."""
    config, traffic, caps = rush(seed)
    engine = OverlappedEngine(config, chaining=chaining, broken_steps=broken)
    for arrival, request in play(engine, traffic, caps):
        assert request.finish_reason is not None
        if request.branch_selector is None:
            alone = unbatched(arrival.prompt, arrival.max_tokens, MAX_LEN, arrival.stop_token_ids)
            assert request.output == alone[: len(request.output)]
    scheduler = engine.scheduler
    assert scheduler.pool.num_used == 0
    assert scheduler.swap.num_free == config.host_blocks


def test_who_was_to_come_back_from_a_save_that_failed_ends_with_it() -> None:
    config = SchedulerConfig(
        max_num_seqs=3,
        max_batched_tokens=64,
        max_model_len=32,
        block_size=4,
        num_blocks=10,
        prefix_cache=False,
        preemption="swap",
        host_blocks=40,
        overlap=True,
    )
    engine = CheckedEngine(config)
    others = [engine.add([i] * 8, 20) for i in range(3)]
    while not (batch := engine.scheduler.schedule(engine.now)).swap_out:
        engine.scheduler.update(batch, engine.model.execute(batch), engine.now)
    (victim,) = batch.preempted
    for request in others:
        if request is not victim:
            engine.scheduler.abort(request.request_id)
    planned = engine.scheduler.schedule(engine.now)
    assert planned.swap_in
    assert engine.scheduler.fail_step(batch, planned) == [victim]
    engine.scheduler.check_integrity()
    assert engine.scheduler.pool.num_used == 0


def test_a_fork_of_a_prompt_whose_step_failed_ends_with_its_donor() -> None:
    for prompt in (3, 4, 5):
        engine = CheckedEngine(
            SchedulerConfig(
                max_num_seqs=3,
                max_batched_tokens=64,
                max_model_len=32,
                block_size=4,
                num_blocks=10,
                prefix_cache=False,
                overlap=True,
            )
        )
        donor = engine.add([1] * prompt, 8)
        batch = engine.scheduler.schedule(engine.now)
        fork, other = engine.add([1] * prompt, 8, prefix_donor=donor), engine.add([1] * prompt, 8)
        planned = engine.scheduler.schedule(engine.now)
        assert fork.num_cached == prompt - 1
        assert set(engine.scheduler.fail_step(batch, planned)) == {donor, fork}
        engine.scheduler.check_integrity()
        assert not other.finished
        assert [item.request for item in engine.scheduler.without_finished(planned).scheduled] == [other]


@either
def test_a_sequence_decodes_in_every_step_and_costs_one_step_more(chaining: bool) -> None:
    config = SchedulerConfig(max_num_seqs=4, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=4, num_blocks=60)
    plain, ahead = CheckedEngine(config), OverlappedEngine(config, chaining=chaining)
    for engine in (plain, ahead):
        engine.add([1, 2, 3], 20)
        engine.run()
    assert [batch.num_tokens for batch in ahead.batches if batch] == [b.num_tokens for b in plain.batches]
    assert len(ahead.batches) == len(plain.batches) + 1, "the last step is ended by one that plans nothing"


@either
def test_no_row_is_planned_past_a_length_that_is_known(chaining: bool) -> None:
    engine = OverlappedEngine(
        SchedulerConfig(max_num_seqs=4, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=4, num_blocks=60),
        chaining=chaining,
    )
    request = engine.add([1, 2, 3], 5)
    engine.run()
    assert request.finish_reason is FinishReason.LENGTH
    assert engine.scheduler.counters.computed_tokens == 3 + 4


@either
def test_a_row_planned_past_a_stop_token_is_thrown_away_and_its_block_is_free(chaining: bool) -> None:
    for seed in range(50):
        prompt = [Random(seed).randrange(50) for _ in range(8)]
        alone = unbatched(prompt, 20, MAX_LEN)
        engine = OverlappedEngine(
            SchedulerConfig(max_num_seqs=4, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=4, num_blocks=60),
            chaining=chaining,
        )
        request = engine.add(prompt, 20, stop_token_ids=(alone[4],))
        engine.run()
        assert request.finish_reason is FinishReason.STOP
        assert request.output == alone[: alone.index(alone[4]) + 1]
        assert engine.scheduler.pool.num_used == 0


def _found(request: Request) -> list[Hypothesis]:
    return request.branch_selector.finished if isinstance(request.branch_selector, BeamSearch) else []
