"""Sequences of one prompt fork from the first: full blocks are shared, the last one is copied."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_engine.core.config import SchedulerConfig


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 30),
    st.integers(2, 5),
    st.sampled_from([1, 3, 4, 8]),
    st.sampled_from([9, 64]),
    st.booleans(),
    st.integers(0, 12),
    st.sampled_from(["recompute", "swap"]),
)
def test_the_prompt_is_computed_once(
    length: int, count: int, size: int, budget: int, prefix_cache: bool, spare: int, preemption: str
) -> None:
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=8,
            max_batched_tokens=budget,
            max_model_len=60,
            block_size=size,
            num_blocks=-(-60 // size) + spare,
            prefix_cache=prefix_cache,
            preemption=preemption,
            host_blocks=0 if preemption == "recompute" else 30,
        )
    )
    prompt = list(range(length))
    first = engine.add(prompt, 10)
    others = [engine.add(prompt, 10, prefix_donor=first) for _ in range(count - 1)]
    engine.run()
    assert all(request.output == unbatched(prompt, 10, 60) for request in [first, *others])
    counters = engine.scheduler.counters
    if counters.preemptions == 0:
        # Of the others the last token of the prompt, from which they sample; the last token sampled is never computed.
        assert counters.computed_tokens == length + len(others) + count * 9


def test_full_blocks_are_shared_and_the_last_is_copied() -> None:
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=4, max_batched_tokens=64, max_model_len=60, block_size=4, num_blocks=40, prefix_cache=False
        )
    )
    first = engine.add([1] * 10, 5)
    others = [engine.add([1] * 10, 5, prefix_donor=first) for _ in range(2)]
    engine.step()
    batch = engine.step()
    assert batch.copies == tuple((first.block_table.block_ids[2], other.block_table.block_ids[2]) for other in others)
    assert all(other.block_table.block_ids[:2] == first.block_table.block_ids[:2] for other in others)
    assert [other.num_cached for other in others] == [9, 9]
    engine.run()
    assert engine.scheduler.pool.num_used == 0


@pytest.mark.parametrize("length", [5, 9])
def test_a_prompt_that_ends_with_a_block_needs_no_copy(length: int) -> None:
    """The last token is computed by each, so it is the tokens before it that fill blocks."""
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=4, max_batched_tokens=64, max_model_len=60, block_size=4, num_blocks=40, prefix_cache=False
        )
    )
    first = engine.add([1] * length, 5)
    engine.add([1] * length, 5, prefix_donor=first)
    engine.run()
    assert not any(batch.copies for batch in engine.batches)
    assert engine.scheduler.counters.computed_tokens == length + 1 + 2 * 4


def test_without_waiting_it_computes_its_own() -> None:
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=4, max_batched_tokens=64, max_model_len=60, block_size=4, num_blocks=40, await_prefix=False
        )
    )
    first = engine.add([1] * 10, 5)
    other = engine.add([1] * 10, 5, prefix_donor=first)
    engine.step()
    assert len(engine.batches[0].scheduled) == 2
    engine.run()
    assert other.output == first.output


def test_a_request_that_has_ended_is_no_prefix_donor() -> None:
    engine = CheckedEngine(
        SchedulerConfig(
            max_num_seqs=1, max_batched_tokens=64, max_model_len=60, block_size=4, num_blocks=40, prefix_cache=False
        )
    )
    first = engine.add([1] * 10, 5)
    other = engine.add([1] * 10, 5, prefix_donor=first)
    engine.run()
    assert other.num_cached == 0
    assert other.output == first.output == unbatched([1] * 10, 5, 60)


def test_who_asks_for_the_prompts_logprobs_computes_it_all() -> None:
    engine = CheckedEngine(
        SchedulerConfig(max_num_seqs=4, max_batched_tokens=64, max_model_len=60, block_size=4, num_blocks=40)
    )
    first = engine.add([1] * 10, 5)
    other = engine.add([1] * 10, 5, prefix_donor=first, prompt_logprobs=0)
    engine.run()
    assert len(other.prompt_logprobs) == 9
    assert not any(batch.copies for batch in engine.batches)
