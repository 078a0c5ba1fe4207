"""What must hold on any trace, each by its number in the scheduler's list of invariants.

The ride itself checks at every step: the token budget (I1), the live cap (I2), that every block is accounted for (I3)
and that nothing is admitted in a step that preempted (I6).
"""

from dataclasses import dataclass

import pytest
from fake_model import Ride, unbatched
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import NeverFits, PromptTooLong, QueueFull
from paternoster_engine.core.request import FinishReason

MAX_LEN = 60

configs = st.builds(
    lambda seqs, budget, size, blocks, watermark, cache, mode, force: SchedulerConfig(
        max_num_seqs=seqs,
        max_batched_tokens=budget,
        max_model_len=MAX_LEN,
        block_size=size,
        num_blocks=max(blocks, -(-MAX_LEN // size)),
        watermark_blocks=watermark,
        prefix_cache=cache,
        mode=mode,
        # without the cache a prompt longer than that many steps' budget would never get through
        force_preempt_every=force if cache else 0,
    ),
    seqs=st.integers(1, 6),
    budget=st.integers(4, 40),
    size=st.integers(1, 8),
    blocks=st.integers(8, 70),
    watermark=st.integers(0, 4),
    cache=st.booleans(),
    mode=st.sampled_from(["continuous", "static"]),
    force=st.sampled_from([0, 0, 13]),
)


@dataclass
class Arrival:
    step: int
    prompt: list[int]
    max_tokens: int
    abort_after: int | None


arrivals = st.lists(
    st.builds(
        Arrival,
        step=st.integers(0, 25),
        # a small alphabet and a common beginning, so that prefixes are shared
        prompt=st.builds(
            lambda common, rest: [7] * common + rest,
            st.integers(0, 25),
            st.lists(st.integers(0, 2), min_size=1, max_size=14),
        ),
        max_tokens=st.integers(1, 20),
        abort_after=st.sampled_from([None, None, None, 0, 1, 4]),
    ),
    min_size=1,
    max_size=9,
)
caps = st.lists(st.integers(1, 6), max_size=6)


def ride_through(config: SchedulerConfig, traffic: list[Arrival], caps: list[int]) -> list[tuple[Arrival, object]]:
    """Play ``traffic`` with the live cap changing every few steps; returns each arrival with its request."""
    ride = Ride(config)
    pending = sorted(traffic, key=lambda arrival: arrival.step)
    played: list[tuple[Arrival, object]] = []
    aborts: list[tuple[int, str]] = []
    step = 0
    while pending or ride.scheduler.has_work:
        assert step < 20_000, "work is left"
        while pending and pending[0].step <= step:
            arrival = pending.pop(0)
            request = ride.add(arrival.prompt, arrival.max_tokens)
            played.append((arrival, request))
            if arrival.abort_after is not None:
                aborts.append((step + arrival.abort_after, request.request_id))
        for when, request_id in aborts:
            if when == step:
                ride.scheduler.abort(request_id)
        if caps and step % 5 == 0:
            ride.scheduler.live_cap = min(caps[step // 5 % len(caps)], config.max_num_seqs)
        ride.step()
        step += 1
    pool = ride.scheduler.pool
    assert pool.num_used == 0, "I15: blocks are held by nobody"
    ride.scheduler.reset_prefix_cache()
    assert pool.num_free == pool.num_blocks, "I15: a reset makes all free"
    counters = ride.scheduler.counters
    assert counters.finished.total() == len(played), "I10: each ends once"
    assert counters.generation_tokens == len([o for o in ride.outputs if o.token is not None])
    return played


@settings(max_examples=150, deadline=None)
@given(configs, arrivals, caps)
def test_i7_i10_i12_every_request_says_what_it_says_alone(
    config: SchedulerConfig, traffic: list[Arrival], caps: list[int]
) -> None:
    """Batching, chunking, sharing, preemption and aborts of others change nothing in what a request says."""
    for arrival, request in ride_through(config, traffic, caps):
        alone = unbatched(arrival.prompt, arrival.max_tokens, config.max_model_len)
        assert request.block_ids == []
        if request.finish_reason is FinishReason.ABORT:
            assert arrival.abort_after is not None
            assert request.output == alone[: len(request.output)]
        else:
            assert request.finish_reason is FinishReason.LENGTH
            assert request.output == alone


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=30), st.integers(1, 8))
def test_i8_a_prefix_hit_leaves_one_token_to_compute(prompt: list[int], size: int) -> None:
    ride = Ride(SchedulerConfig(2, 64, MAX_LEN, size, 80))
    ride.add(prompt, 3)
    ride.run()
    again = ride.add(prompt, 3)
    batch = ride.step()
    (item,) = [item for item in batch.scheduled if item.request is again]
    assert again.num_cached <= len(prompt) - 1
    assert item.num_tokens >= 1
    assert again.num_cached == (len(prompt) - 1) // size * size, "what is full and computed is found"


@settings(max_examples=50, deadline=None)
@given(configs, st.integers(1, MAX_LEN), st.integers(1, MAX_LEN))
def test_i9_what_cannot_fit_is_refused_and_what_is_taken_ends(
    config: SchedulerConfig, prompt: int, output: int
) -> None:
    small = SchedulerConfig(2, 16, MAX_LEN, config.block_size, max(1, config.num_blocks // 3))
    ride = Ride(small)
    try:
        ride.add([1] * prompt, output)
    except PromptTooLong:
        assert prompt + output > MAX_LEN
    except NeverFits:
        assert -(-(prompt + output - 1) // small.block_size) > small.num_blocks
    else:
        ride.run()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=8), st.integers(1, 4))
def test_i11_admission_is_in_order_of_arrival(lengths: list[int], seqs: int) -> None:
    ride = Ride(SchedulerConfig(seqs, 16, MAX_LEN, 4, 100))
    requests = [ride.add([i % 3] * length, 5) for i, length in enumerate(lengths)]
    ride.run()
    times = [request.first_scheduled for request in requests]
    assert times == sorted(times)


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_i16_chunks_at_block_edges(size: int, off: int) -> None:
    for blocks in (1, 2, 3):
        budget = blocks * size + off
        ride = Ride(SchedulerConfig(2, budget, MAX_LEN, size, 60))
        prompts = [[i % 5 for i in range(3 * size + extra)] for extra in (-1, 0, 1)]
        requests = [ride.add(prompt, 2 * size) for prompt in prompts]
        ride.run()
        assert [r.output for r in requests] == [unbatched(p, 2 * size, MAX_LEN) for p in prompts]


def test_i14_lowering_the_cap_under_load_preempts_nobody_and_raising_acts_at_once() -> None:
    ride = Ride(SchedulerConfig(32, 256, MAX_LEN, 4, 2000))
    for i in range(80):
        ride.add([i % 7, i % 5, i % 3], 20 + i % 11)
    ride.step()
    assert len(ride.scheduler.running) == 32
    ride.scheduler.live_cap = 4
    seen = [32]
    while len(ride.scheduler.running) > 4:
        ride.step()
        assert len(ride.scheduler.running) <= seen[-1], "the number running only falls"
        seen.append(len(ride.scheduler.running))
    for _ in range(5):
        ride.step()
    assert ride.scheduler.counters.preemptions == 0
    ride.scheduler.live_cap = 20
    ride.step()
    assert len(ride.scheduler.running) >= 17, "all but those that ended in this very step"
    ride.run()
    assert ride.scheduler.counters.preemptions == 0


def test_i14_the_cap_stays_within_capacity() -> None:
    ride = Ride(SchedulerConfig(8, 64, MAX_LEN, 4, 60))
    for cap in (0, 9):
        with pytest.raises(ValueError, match=f"live_cap is {cap}: must be 1 to 8"):
            ride.scheduler.live_cap = cap
    assert ride.scheduler.live_cap == 8


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.integers(1, 5))
def test_i17_a_static_batch_drains_whole(outputs: list[int], seqs: int) -> None:
    ride = Ride(SchedulerConfig(seqs, 64, MAX_LEN, 4, 500, mode="static"))
    for output in outputs:
        ride.add([1, 2, 3], output)
    members: set[str] = set()
    while ride.scheduler.has_work:
        before = {request.request_id for request in ride.scheduler.running}
        batch = ride.step()
        now = {item.request.request_id for item in batch.scheduled}
        if before:
            assert now <= members, "somebody boarded while the batch ran"
        else:
            members = now


def test_queue_is_bounded() -> None:
    ride = Ride(SchedulerConfig(1, 64, MAX_LEN, 4, 60, max_queued_requests=2))
    ride.add([1], 5)
    ride.step()
    ride.add([1], 5)
    ride.add([1], 5)
    with pytest.raises(QueueFull):
        ride.add([1], 5)
    assert ride.scheduler.counters.rejected == {"queue_full": 1}
    ride.run()
    assert ride.scheduler.counters.finished.total() == 3
