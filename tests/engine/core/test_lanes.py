"""A lane for batches beside online requests, which fare as if it were not there."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched
from tests.engine.core.traces import MAX_LEN, NUM_TRACES, Arrival, arrivals, caps, configs, fits, lanes

from paternoster_contract.access.identity import Lane
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.scheduler import CACHE_SECONDS
from paternoster_engine.engine import Engine

BATCH = Lane.BATCH
Row = tuple[int, int, int]
"""Number of an arrival, first token and tokens of its chunk."""


def config(**changes: object) -> SchedulerConfig:
    values: dict[str, Any] = {
        "max_num_seqs": 4, "max_batched_tokens": 16, "max_model_len": MAX_LEN, "block_size": 4, "num_blocks": 100,
    }  # fmt: skip
    return SchedulerConfig(**{**values, **changes})


def play(
    config: SchedulerConfig, traffic: Sequence[Arrival], caps: Sequence[int], plays: Sequence[Lane]
) -> tuple[list[list[Row]], list[dict[str, Any]], list[Request]]:
    """Online rows and numbers of each step with the arrivals of some lanes, and their online requests.

    Times are the same whatever lanes play.
    """
    engine = CheckedEngine(config)
    scheduler, numbers, step = engine.scheduler, dict[Request, int](), 0
    rows: list[list[Row]] = []
    stats: list[dict[str, Any]] = []
    while step <= max(each.step for each in traffic) or scheduler.lanes[0].has_work or len(rows) < 40:
        for number, each in enumerate(traffic):
            if each.step == step and each.lane in plays and fits(config, each):
                engine.now = 2.0 * step + number / 1000
                request = engine.add(
                    each.prompt, each.max_tokens, priority=each.priority, tenant=each.tenant, patience=each.patience,
                    beam=each.beam, stop_token_ids=each.stop_token_ids, lane=each.lane,
                )  # fmt: skip
                numbers[request] = number
        if caps and step % 5 == 0:
            scheduler.live_cap = min(caps[step // 5 % len(caps)], config.max_num_seqs)
            scheduler.token_budget = max(1, config.max_batched_tokens - step % 10)
        engine.now = 2.0 * step
        batch = engine.step()
        online = [item for item in batch.scheduled if item.request.spec.lane is Lane.ONLINE]
        rows.append([(numbers[item.request.leader], item.start, item.num_tokens) for item in online])
        stats.append({name: value for name, value in scheduler.build_stats().items() if name != "batch"})
        step += 1
        assert step < 20_000
    return rows, stats, [request for request in numbers if request.spec.lane is Lane.ONLINE]


@settings(max_examples=NUM_TRACES // 3, deadline=None)
@given(configs, arrivals, lanes, caps)
def test_online_requests_have_the_same_steps_with_and_without_batches(
    config: SchedulerConfig, traffic: list[Arrival], lanes: list[Lane], caps: list[int]
) -> None:
    """So none is refused, preempted or late for a batch; nor is there anything of one in the numbers of the first lane.

    Where prefixes are cached, what a batch has computed may make an online request faster.
    """
    traffic = [replace(each, lane=lane, n=1) for each, lane in zip(traffic, lanes, strict=False)]
    config = config.replace(prefix_cache=False, force_preempt_every=0)
    alone, beside = (play(config, traffic, caps, plays) for plays in ([Lane.ONLINE], [Lane.ONLINE, BATCH]))
    steps = min(len(alone[0]), len(beside[0]))
    assert alone[0][:steps] == beside[0][:steps]
    assert alone[1][:steps] == beside[1][:steps]
    assert [each.output for each in alone[2]] == [each.output for each in beside[2]]


@settings(max_examples=100, deadline=None)
@given(
    order=st.sampled_from(["fcfs", "priority", "fair-share"]),
    admission=st.sampled_from(["greedy", "no-evict"]),
    prompt=st.integers(1, 40),
    blocks=st.integers(15, 60),
    seqs=st.integers(1, 5),
    work=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=8),
    after=st.integers(0, 30),
)
def test_an_online_request_begins_at_once_in_an_engine_full_of_batches(
    order: Any, admission: Any, prompt: int, blocks: int, seqs: int, work: list[tuple[int, int]], after: int
) -> None:
    made = config(
        order=order, admission=admission, max_num_seqs=seqs, num_blocks=blocks, max_batched_tokens=64, await_prefix=True
    )
    engine = CheckedEngine(made)
    for length, output in work:
        engine.add([1] * length, output, lane=BATCH)
    for _ in range(after):
        engine.step()
    online = engine.add([1] * prompt, 20)
    engine.step()
    assert len(online.output) == 1
    engine.run()
    assert online.num_preemptions == 0
    assert online.output == unbatched([1] * prompt, 20, MAX_LEN)
    assert engine.scheduler.lanes[BATCH].counters.finished.total() == len(work)


def test_a_batch_gets_the_tokens_that_a_step_has_left() -> None:
    engine = CheckedEngine(config())
    line = engine.add([1] * 40, 5, lane=BATCH)
    online = engine.add([2] * 10, 5)
    sizes = [{item.request: item.num_tokens for item in engine.step().scheduled} for _ in range(4)]
    assert sizes == [{online: 10, line: 6}, {online: 1, line: 15}, {online: 1, line: 15}, {online: 1, line: 4}]


def test_no_line_is_admitted_while_an_online_request_waits() -> None:
    engine = CheckedEngine(config(num_blocks=15, max_batched_tokens=64, prefix_cache=False))
    online = [engine.add([number] * 32, 4) for number in range(2)]
    line = engine.add([5] * 4, 2, lane=BATCH)
    while online[1].first_scheduled is None:
        engine.step()
        assert line.first_scheduled is None or online[1].first_scheduled == engine.now, "it would fit, and waits"
    engine.run()
    assert [each.output for each in online] == [unbatched(each.prompt, 4, MAX_LEN) for each in online]
    assert line.output == unbatched([5] * 4, 2, MAX_LEN)


def test_no_online_request_waits_for_a_prefix_that_a_line_computes() -> None:
    engine = CheckedEngine(config(max_batched_tokens=32))
    line = engine.add([1] * 40, 2, lane=BATCH)
    engine.step()
    assert line.num_computed == 32
    online = engine.add([1] * 39, 1)
    engine.step()
    assert online.finished


def test_sequences_of_a_batch_without_a_slot_keep_their_blocks_and_go_on_later() -> None:
    engine = CheckedEngine(config())
    work = [engine.add([number] * 4, 12, lane=BATCH) for number in range(4)]
    engine.step()
    online = [engine.add([7, number], 3) for number in range(3)]
    batch = engine.step()
    assert [item.request for item in batch.scheduled] == [*online, work[0]]
    assert all(each.block_table.block_ids for each in work)
    engine.run()
    assert engine.scheduler.lanes[BATCH].counters.preemptions == 0
    assert [each.output for each in work] == [unbatched(each.prompt, 12, MAX_LEN) for each in work]


def test_the_line_with_the_least_computed_makes_way_for_blocks() -> None:
    engine = CheckedEngine(config(num_blocks=15, max_batched_tokens=64, prefix_cache=False))
    long, short = engine.add([1] * 24, 12, lane=BATCH), engine.add([2] * 12, 12, lane=BATCH)
    engine.step()
    online = engine.add([3] * 30, 4)
    batch = engine.step()
    assert list(batch.preempted) == [short]
    assert online.output
    assert long.block_table.block_ids
    counters, lower = engine.scheduler.counters, engine.scheduler.lanes[BATCH].counters
    engine.run()
    assert (counters.preemptions, counters.recomputed_tokens) == (0, 0)
    assert lower.preemptions >= 1
    assert lower.recomputed_tokens >= 12


def test_lines_evict_nothing_that_online_requests_have_cached() -> None:
    engine = CheckedEngine(config(num_blocks=30, max_batched_tokens=64, max_num_seqs=8))
    online = [engine.add([number] * 21, 4) for number in range(4)]
    engine.run()
    cached = set(engine.scheduler.pool.cached_keys)
    work = [engine.add([10 + number] * 15, 4, lane=BATCH) for number in range(12)]
    for _ in range(CACHE_SECONDS - 50):
        engine.step()
    assert cached <= engine.scheduler.pool.cached_keys
    assert all(each.finished for each in work), "they share what is left"
    again = engine.add(online[0].prompt, 1)
    engine.run()
    assert again.num_cached == 20


def test_what_no_online_request_has_used_for_long_may_be_evicted() -> None:
    engine = CheckedEngine(config(num_blocks=15, max_batched_tokens=64))
    engine.add([1] * 50, 9)
    engine.run()
    used = engine.add([1] * 9, 1)
    engine.run()
    line = engine.add([2] * 40, 4, lane=BATCH)
    ended = engine.now
    engine.run()
    assert line.first_scheduled is not None
    assert CACHE_SECONDS - 5 <= line.first_scheduled - ended <= CACHE_SECONDS + 2
    assert used.num_found == 8


def test_what_a_batch_has_cached_is_evicted_first_until_an_online_request_uses_it() -> None:
    engine = CheckedEngine(config(num_blocks=15, max_batched_tokens=64))
    lines = [engine.add([number] * 9, 1, lane=BATCH) for number in (1, 2)]
    engine.run()
    found = engine.add(lines[0].prompt, 1)
    engine.run()
    assert found.num_found == 8
    engine.add([3] * 50, 1)  # 13 blocks
    engine.run()
    prefixes = [engine.add(each.prompt, 1) for each in lines]
    engine.step()
    assert [each.num_found for each in prefixes] == [8, 0]


def test_a_step_with_a_batch_is_no_longer_than_one_that_tenants_share() -> None:
    engine = CheckedEngine(config(max_batched_tokens=256, max_model_len=3000, num_blocks=2000))
    engine.scheduler.bound_shared_steps(40)
    engine.add([1] * 2000, 1, lane=BATCH)
    assert engine.step().num_tokens == 40
    online = engine.add([2] * 100, 5)
    assert [engine.step().num_tokens for _ in range(3)] == [100, 40, 40]
    assert len(online.output) == 3


def test_steps_of_batches_alone_are_in_no_sum_of_the_first_lane() -> None:
    checked = CheckedEngine(config())
    engine = Engine(checked.scheduler, checked.model, clock=lambda: checked.now)
    first, lower = (lane.counters for lane in checked.scheduler.lanes)
    checked.add([1] * 30, 3, lane=BATCH)
    while checked.scheduler.has_work:
        checked.now += 1
        engine.step()
    assert (first.steps.total[0], first.computed_tokens) == (0, 0)
    assert (lower.steps.total[0], lower.computed_tokens) == (4, 32)
    checked.add([1] * 3, 1)
    engine.step()
    assert (first.steps.total[0], lower.steps.total[0]) == (1, 4)


def test_a_full_queue_of_lines_refuses_no_online_request() -> None:
    engine = CheckedEngine(config(max_queued_requests=2))
    for number in range(2):
        engine.add([number], 2, lane=BATCH)
        engine.add([number], 2)
    assert engine.scheduler.build_stats()["waiting"] == 2
    engine.run()
    assert engine.scheduler.counters.finished.total() == 2
