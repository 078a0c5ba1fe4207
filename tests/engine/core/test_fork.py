"""Sequences of one prompt fork from the first: full blocks are shared, the last one is copied."""

import pytest
from fake_model import Ride, unbatched
from hypothesis import given, settings
from hypothesis import strategies as st

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
    ride = Ride(
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
    first = ride.add(prompt, 10)
    others = [ride.add(prompt, 10, twin=first) for _ in range(count - 1)]
    ride.run()
    assert all(request.output == unbatched(prompt, 10, 60) for request in [first, *others])
    counters = ride.scheduler.counters
    if counters.preemptions == 0:
        # Of the others the last token of the prompt, from which they sample; the last token sampled is never computed.
        assert counters.computed_tokens == length + len(others) + count * 9


def test_full_blocks_are_shared_and_the_last_is_copied() -> None:
    ride = Ride(SchedulerConfig(4, 64, 60, 4, 40, prefix_cache=False))
    first = ride.add([1] * 10, 5)
    others = [ride.add([1] * 10, 5, twin=first) for _ in range(2)]
    ride.step()
    batch = ride.step()
    assert batch.copies == tuple((first.block_ids[2], other.block_ids[2]) for other in others)
    assert all(other.block_ids[:2] == first.block_ids[:2] for other in others)
    assert [other.num_cached for other in others] == [9, 9]
    ride.run()
    assert ride.scheduler.pool.num_used == 0


@pytest.mark.parametrize("length", [5, 9])
def test_a_prompt_that_ends_with_a_block_needs_no_copy(length: int) -> None:
    """The last token is computed by each, so it is the tokens before it that fill blocks."""
    ride = Ride(SchedulerConfig(4, 64, 60, 4, 40, prefix_cache=False))
    first = ride.add([1] * length, 5)
    ride.add([1] * length, 5, twin=first)
    ride.run()
    assert not any(batch.copies for batch in ride.batches)
    assert ride.scheduler.counters.computed_tokens == length + 1 + 2 * 4


def test_without_waiting_it_computes_its_own() -> None:
    ride = Ride(SchedulerConfig(4, 64, 60, 4, 40, await_prefix=False))
    first = ride.add([1] * 10, 5)
    other = ride.add([1] * 10, 5, twin=first)
    ride.step()
    assert len(ride.batches[0].scheduled) == 2
    ride.run()
    assert other.output == first.output


def test_a_twin_that_has_ended_is_no_donor() -> None:
    ride = Ride(SchedulerConfig(1, 64, 60, 4, 40, prefix_cache=False))
    first = ride.add([1] * 10, 5)
    other = ride.add([1] * 10, 5, twin=first)
    ride.run()
    assert other.num_cached == 0
    assert other.output == first.output == unbatched([1] * 10, 5, 60)


def test_who_asks_for_the_prompts_logprobs_computes_it_all() -> None:
    ride = Ride(SchedulerConfig(4, 64, 60, 4, 40))
    first = ride.add([1] * 10, 5)
    other = ride.add([1] * 10, 5, twin=first, prompt_logprobs=0)
    ride.run()
    assert len(other.prompt_logprobs) == 9
    assert not any(batch.copies for batch in ride.batches)
