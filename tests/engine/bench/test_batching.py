"""Whole batches on the real scheduler: who is in one, when it begins, and that it drains before the next."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_engine.bench.batching import BATCH_WAIT_SECONDS, BatchedScheduler, make_scheduler
from paternoster_engine.core.config import SchedulerConfig

MAX_LEN = 64


def make_config(**changes: int | str) -> SchedulerConfig:
    sizes = {"max_num_seqs": 4, "max_batched_tokens": 64, "max_model_len": MAX_LEN, "block_size": 4, "num_blocks": 400}
    return SchedulerConfig(**{**sizes, **changes})  # type: ignore[arg-type]


def batched(size: int = 1, wait: float = 0.0, live_cap: int | None = None, **changes: int | str) -> CheckedEngine:
    config = make_config(**changes)
    return CheckedEngine(config, scheduler=BatchedScheduler(config, live_cap, size=size, wait=wait))


requests = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20), st.integers(0, 30)), min_size=1, max_size=12)
"""Prompt tokens, output tokens, and the step before which each comes."""


@settings(max_examples=200, deadline=None)
@given(
    traffic=requests,
    slots=st.integers(1, 5),
    budget=st.integers(5, 64),
    wait=st.sampled_from([0.0, 3.0]),
    spare_blocks=st.sampled_from([0, 2, 400]),
)
def test_batch_drains_before_next_begins_and_answers_stay_the_same(
    traffic: list[tuple[int, int, int]], slots: int, budget: int, wait: float, spare_blocks: int
) -> None:
    """Also where the pool does not hold the whole batch, so that members are preempted and resume."""
    engine = batched(slots, wait, max_num_seqs=slots, max_batched_tokens=budget, num_blocks=16 + spare_blocks)
    arrivals = sorted(traffic, key=lambda request: request[2])
    added = []
    batch: set[str] = set()
    for step in range(5_000):
        while arrivals and arrivals[0][2] <= step:
            prompt, output, _ = arrivals.pop(0)
            added.append((engine.add([len(added)] * prompt, output), output))
        ended = {request.request_id for request, _ in added if request.finished}
        engine.step()
        computed = {item.request.request_id for item in engine.batches[-1].scheduled}
        if batch <= ended and computed:
            batch = set()
        batch |= computed
        assert len(batch) <= slots
        if not arrivals and not engine.scheduler.has_work:
            break
    assert [request.output for request, _ in added] == [
        unbatched(request.prompt, output, MAX_LEN) for request, output in added
    ]


def test_batch_below_its_size_waits_for_more_requests() -> None:
    engine = batched(size=3, wait=1000.0)
    engine.add([1], 2)
    engine.add([2], 2)
    for _ in range(5):
        assert not engine.step()
    engine.add([3], 2)
    assert len(engine.step().scheduled) == 3


def test_batch_below_its_size_begins_when_the_oldest_request_has_waited() -> None:
    engine = batched(size=3, wait=4.0)
    engine.add([1], 2)
    assert [bool(engine.step()) for _ in range(4)] == [False, False, False, True]
    engine.run()


def test_dynamic_batch_begins_when_all_slots_are_filled() -> None:
    config = make_config(max_num_seqs=2)
    engine = CheckedEngine(config, scheduler=make_scheduler("dynamic", config))
    engine.add([1], 2)
    assert not engine.scheduler.schedule(engine.now + BATCH_WAIT_SECONDS / 2)
    engine.add([2], 2)
    assert len(engine.scheduler.schedule(engine.now + BATCH_WAIT_SECONDS / 2).scheduled) == 2


def test_aborted_members_leave_the_batch() -> None:
    engine = batched(live_cap=1)
    first, second = engine.add([1], 9), engine.add([2], 3)
    engine.step()
    engine.scheduler.abort(first.request_id)
    assert [item.request for item in engine.step().scheduled] == [second]


def test_batches_in_another_order_than_first_come_are_refused() -> None:
    with pytest.raises(ValueError, match="order is 'priority': must be 'fcfs' where whole batches are admitted"):
        BatchedScheduler(make_config(order="priority"))
