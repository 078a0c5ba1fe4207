"""What must hold on any trace and for any combination of settings, by its number in docs/invariants.md.

``CheckedEngine`` checks at every step: the token budget (I1), the live cap (I2), that every block is accounted for
(I3), that only full blocks are shared (I4), that nothing is admitted in a step that preempted, but for priority (I6),
and that no request past a deadline gets a prefill. I5, I11 and I14 to I19 are about one setting each and have tests of
their own, here and beside this file.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, Search, searched, unbatched
from tests.engine.core.traces import MAX_LEN, NUM_TRACES, Arrival, arrivals, caps, configs, lanes, play, rush

from paternoster_contract.access.identity import Lane
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import NeverFits, PromptTooLong, QueueFull
from paternoster_engine.core.request import FinishReason
from paternoster_engine.sampling.beam_search import BeamSearch


@settings(max_examples=NUM_TRACES, deadline=None)
@given(configs, arrivals, caps)
def test_any_trace_under_any_settings(config: SchedulerConfig, traffic: list[Arrival], caps: list[int]) -> None:
    """Batching, chunking, sharing, preemption, swaps and ends of others change nothing in what a request says (I7)."""
    check_trace(config, traffic, caps)


@settings(max_examples=NUM_TRACES, deadline=None)
@given(configs, arrivals, lanes, caps)
def test_any_trace_of_two_lanes_under_any_settings(
    config: SchedulerConfig, traffic: list[Arrival], lanes: list[Lane], caps: list[int]
) -> None:
    check_trace(config, [replace(each, lane=lane) for each, lane in zip(traffic, lanes, strict=False)], caps)


@pytest.mark.parametrize("part", range(4))
def test_any_rush_of_two_lanes_under_any_settings(part: int) -> None:
    for seed in range(part, NUM_TRACES, 4):
        config, traffic, caps = rush(seed)
        check_trace(config, [replace(each, lane=Lane(i % 2)) for i, each in enumerate(traffic)], caps)


@pytest.mark.parametrize("part", range(4))
def test_any_rush_under_any_settings(part: int) -> None:
    for seed in range(part, NUM_TRACES, 4):
        check_trace(*rush(seed))


def check_trace(
    config: SchedulerConfig,
    traffic: list[Arrival],
    caps: list[int],
    make: Callable[[SchedulerConfig], CheckedEngine] = CheckedEngine,
) -> None:
    engine = make(config)
    played = play(engine, traffic, caps)
    searches: list[BeamSearch] = []
    for arrival, request in played:
        assert request.block_table.block_ids == []
        if arrival.beam is None:
            alone = unbatched(arrival.prompt, arrival.max_tokens, config.max_model_len, arrival.stop_token_ids)
            assert request.output == alone[: len(request.output)]
            whole = request.output == alone
        else:
            assert isinstance(request.branch_selector, BeamSearch)
            whole = request.branch_selector.finished == searched(arrival.prompt, Search(request.params, arrival.beam))
            searches.append(request.branch_selector)
        match request.finish_reason:
            case FinishReason.LENGTH | FinishReason.STOP:
                assert whole
            case FinishReason.ABORT:
                assert arrival.abort_after is not None
            case FinishReason.TIMEOUT:
                assert arrival.patience is not None
                assert request.num_preemptions > 0 or not request.output
            case other:
                raise AssertionError(f"{request.request_id} ended with {other}")
    scheduler = engine.scheduler
    assert scheduler.pool.num_used == 0, "I15: blocks are held by nobody"
    assert scheduler.swap.num_free == config.host_blocks, "I15: host blocks are held by nobody"
    scheduler.reset_prefix_cache()
    assert scheduler.pool.num_free == scheduler.pool.num_blocks, "I15: a reset makes all free"
    counters = [lane.counters for lane in scheduler.lanes]
    assert sum(each.finished.total() for each in counters) == len(played), "I10: each ends once"
    sampled = sum(output.token is not None for output in engine.outputs)
    sampled += sum(search.width * (search.num_tokens + search.done) for search in searches)
    assert sum(each.generation_tokens for each in counters) == sampled


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=30), st.integers(1, 8))
def test_i8_a_prefix_hit_leaves_one_token_to_compute(prompt: list[int], size: int) -> None:
    engine = CheckedEngine(
        SchedulerConfig(max_num_seqs=2, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=size, num_blocks=80)
    )
    engine.add(prompt, 3)
    engine.run()
    again = engine.add(prompt, 3)
    batch = engine.step()
    (item,) = [item for item in batch.scheduled if item.request is again]
    assert again.num_cached <= len(prompt) - 1
    assert item.num_tokens >= 1
    assert again.num_cached == (len(prompt) - 1) // size * size, "what is full and computed is found"


@settings(max_examples=50, deadline=None)
@given(configs, st.integers(1, MAX_LEN), st.integers(1, MAX_LEN))
def test_i9_what_cannot_fit_is_refused_and_what_is_taken_ends(
    config: SchedulerConfig, prompt: int, output: int
) -> None:
    small = SchedulerConfig(
        max_num_seqs=2,
        max_batched_tokens=16,
        max_model_len=MAX_LEN,
        block_size=config.block_size,
        num_blocks=max(1, config.num_blocks // 3),
    )
    engine = CheckedEngine(small)
    try:
        engine.add([1] * prompt, output)
    except PromptTooLong:
        assert prompt + output > MAX_LEN
    except NeverFits:
        assert -(-(prompt + output - 1) // small.block_size) > small.num_blocks
    else:
        engine.run()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=8), st.integers(1, 4))
def test_i11_admission_is_in_order_of_arrival(lengths: list[int], seqs: int) -> None:
    engine = CheckedEngine(
        SchedulerConfig(max_num_seqs=seqs, max_batched_tokens=16, max_model_len=MAX_LEN, block_size=4, num_blocks=100)
    )
    requests = [engine.add([i] * length, 5) for i, length in enumerate(lengths)]
    engine.run()
    times = [request.first_scheduled for request in requests]
    assert times == sorted(times)


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_i16_chunks_at_block_edges(size: int, off: int) -> None:
    for blocks in (1, 2, 3):
        budget = blocks * size + off
        engine = CheckedEngine(
            SchedulerConfig(
                max_num_seqs=2, max_batched_tokens=budget, max_model_len=MAX_LEN, block_size=size, num_blocks=60
            )
        )
        prompts = [[i % 5 for i in range(3 * size + extra)] for extra in (-1, 0, 1)]
        requests = [engine.add(prompt, 2 * size) for prompt in prompts]
        engine.run()
        assert [r.output for r in requests] == [unbatched(p, 2 * size, MAX_LEN) for p in prompts]


def test_i14_lowering_the_cap_under_load_preempts_nobody_and_raising_acts_at_once() -> None:
    engine = CheckedEngine(
        SchedulerConfig(max_num_seqs=32, max_batched_tokens=256, max_model_len=MAX_LEN, block_size=4, num_blocks=2000)
    )
    for i in range(80):
        engine.add([i % 7, i % 5, i % 3], 20 + i % 11)
    engine.step()
    assert len(engine.scheduler.running) == 32
    engine.scheduler.live_cap = 4
    seen = [32]
    while len(engine.scheduler.running) > 4:
        engine.step()
        assert len(engine.scheduler.running) <= seen[-1], "the number running only falls"
        seen.append(len(engine.scheduler.running))
    for _ in range(5):
        engine.step()
    assert engine.scheduler.counters.preemptions == 0
    engine.scheduler.live_cap = 20
    engine.step()
    assert len(engine.scheduler.running) >= 17, "all but those that ended in this very step"
    engine.run()
    assert engine.scheduler.counters.preemptions == 0


def test_i14_the_cap_stays_within_capacity() -> None:
    engine = CheckedEngine(
        SchedulerConfig(max_num_seqs=8, max_batched_tokens=64, max_model_len=MAX_LEN, block_size=4, num_blocks=60)
    )
    for cap in (0, 9):
        with pytest.raises(ValueError, match=f"live_cap is {cap}: must be 1 to 8"):
            engine.scheduler.live_cap = cap
    assert engine.scheduler.live_cap == 8


def test_queue_is_bounded() -> None:
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=1,
            max_batched_tokens=64,
            max_model_len=MAX_LEN,
            block_size=4,
            num_blocks=60,
            max_queued_requests=2,
        )
    )
    engine.add([1], 5)
    engine.step()
    engine.add([1], 5)
    engine.add([1], 5)
    with pytest.raises(QueueFull):
        engine.add([1], 5)
    assert engine.scheduler.counters.rejected == {"queue_full": 1}
    engine.run()
    assert engine.scheduler.counters.finished.total() == 3
