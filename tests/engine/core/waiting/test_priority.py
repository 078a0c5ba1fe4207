"""Classes: who goes first, who makes way, and that no request starves and no two preempt each other in turns."""

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine
from tests.engine.core.traces import Arrival, arrivals, caps, play

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import RequestStatus


def config(**changes: int | float | bool | str) -> SchedulerConfig:
    values = {
        "max_num_seqs": 2, "max_batched_tokens": 64, "max_model_len": 60, "block_size": 4, "num_blocks": 40,
        "order": "priority",
    }  # fmt: skip
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


def test_the_more_important_goes_first_and_equals_in_order_of_arrival() -> None:
    engine = CheckedEngine(config(max_num_seqs=1))
    requests = [engine.add([i], 2, priority=priority) for i, priority in enumerate([1, 0, 2, 0, 1])]
    engine.run()
    served = sorted(requests, key=lambda request: request.first_scheduled or 0.0)
    assert [requests.index(request) for request in served] == [1, 3, 0, 4, 2]


def test_a_running_lower_class_makes_way_for_want_of_a_place() -> None:
    engine = CheckedEngine(config())
    low, lower = engine.add([1] * 5, 20, priority=1), engine.add([2] * 5, 20, priority=2)
    engine.step()
    high = engine.add([3] * 5, 4, priority=0)
    batch = engine.step()
    assert batch.preempted == (lower,)
    assert {item.request for item in batch.scheduled} == {low, high}
    assert engine.scheduler.counters.priority_preemptions == 1
    engine.run()
    assert (low.num_preemptions, lower.num_preemptions, high.num_preemptions) == (0, 1, 0)


def test_a_running_lower_class_makes_way_for_want_of_blocks() -> None:
    engine = CheckedEngine(config(num_blocks=15, max_num_seqs=4))
    low = engine.add([1] * 40, 10, priority=1)
    engine.step()
    high = engine.add([2] * 40, 10, priority=0)
    batch = engine.step()
    assert batch.preempted == (low,)
    assert high.status is RequestStatus.RUNNING
    engine.run()


def test_nobody_is_preempted_when_that_would_not_be_enough() -> None:
    engine = CheckedEngine(config(num_blocks=15, max_num_seqs=4))
    engine.add([1] * 40, 10, priority=0)
    engine.add([2] * 12, 10, priority=2)
    engine.step()
    engine.add([3] * 40, 10, priority=1)
    assert engine.step().preempted == ()
    engine.run()


@settings(max_examples=100, deadline=None)
@given(arrivals, caps, st.sampled_from([0.0, 4.0]))
def test_i5_equals_never_preempt_each_other(traffic: list[Arrival], caps: list[int], aging: float) -> None:
    for arrival in traffic:
        arrival.priority = 1
    engine = CheckedEngine(config(max_num_seqs=4, num_blocks=60, priority_aging=aging))
    play(engine, traffic, caps)
    assert engine.scheduler.counters.priority_preemptions == 0


@settings(max_examples=150, deadline=None)
@given(arrivals, st.integers(15, 25), st.booleans())
def test_i5_the_most_important_loses_nothing_to_those_below_it(
    traffic: list[Arrival], num_blocks: int, prefill_first: bool
) -> None:
    for arrival in traffic:
        arrival.priority = max(0, arrival.priority)
    traffic[0].priority = -1
    traffic[0].n = 1
    engine = CheckedEngine(
        config(max_num_seqs=4, num_blocks=num_blocks, prefill_first=prefill_first, prefix_cache=False)
    )
    for arrival, request in play(engine, traffic, []):
        if arrival is traffic[0]:
            assert request.num_preemptions == 0


def test_aging_lets_the_low_have_its_turn() -> None:
    """A stream of more important requests shuts a lower one out for ever, unless waiting counts."""

    def steps_until_served(aging: float) -> int | None:
        engine = CheckedEngine(config(max_num_seqs=1, priority_aging=aging))
        low = engine.add([9], 2, priority=2)
        for step in range(60):
            engine.add([step], 1, priority=1)
            engine.step()
            if low.first_scheduled is not None:
                return step
        return None

    assert steps_until_served(0.0) is None
    assert steps_until_served(10.0) == 10


def test_who_has_aged_is_not_preempted_by_those_behind_it() -> None:
    engine = CheckedEngine(config(max_num_seqs=1, priority_aging=5.0))
    old = engine.add([1], 30, priority=1)
    for _ in range(8):
        engine.step()
    engine.add([2], 2, priority=0)
    assert engine.step().preempted == ()
    engine.run()
    assert old.num_preemptions == 0


def test_lower_classes_pause_while_a_prompt_above_them_is_computed() -> None:
    engine = CheckedEngine(config(max_num_seqs=4, max_batched_tokens=8, pause_lower_classes=True))
    equal, lower = engine.add([1] * 3, 20, priority=0), engine.add([2] * 3, 20, priority=1)
    long = engine.add([4] * 30, 20, priority=1)
    engine.step()
    engine.step()
    urgent = engine.add([3] * 17, 3, priority=0)
    for tokens in (7, 7, 3):
        batch = engine.step()
        assert [(item.request, item.num_tokens) for item in batch.scheduled] == [(equal, 1), (urgent, tokens)]
    batch = engine.step()
    assert [(item.request, item.num_tokens) for item in batch.scheduled] == [
        (equal, 1), (urgent, 1), (lower, 1), (long, 5),
    ]  # fmt: skip
    engine.run()
    assert lower.num_preemptions == long.num_preemptions == 0


@settings(max_examples=150, deadline=None)
@given(arrivals, st.integers(15, 40), st.sampled_from([4, 8, 40]))
def test_no_step_mixes_a_prompt_with_a_class_below_it(traffic: list[Arrival], num_blocks: int, budget: int) -> None:
    engine = CheckedEngine(
        config(
            max_num_seqs=4, num_blocks=num_blocks, max_batched_tokens=budget, pause_lower_classes=True,
            prefix_cache=False,
        )
    )  # fmt: skip
    waiting = sorted(traffic, key=lambda arrival: arrival.step)
    for step in count():
        while waiting and waiting[0].step <= step:
            arrival = waiting.pop(0)
            engine.add(arrival.prompt, arrival.max_tokens, priority=arrival.priority)
        if not waiting and not engine.scheduler.has_work:
            break
        items = engine.step().scheduled
        prompts = [
            item.request.spec.priority for item in items if item.num_tokens > 1 or item.stop <= item.request.num_prompt
        ]
        assert all(item.request.spec.priority <= min(prompts) for item in items if prompts)


def test_lower_classes_go_on_while_a_prompt_above_them_does_not_fit() -> None:
    engine = CheckedEngine(config(num_blocks=15, max_num_seqs=4, pause_lower_classes=True))
    high, low = engine.add([1] * 40, 10, priority=0), engine.add([2] * 12, 8, priority=2)
    engine.step()
    engine.step()
    waits = engine.add([3] * 40, 10, priority=1)
    assert {item.request for item in engine.step().scheduled} == {high, low}
    engine.run()
    assert waits.finished


def test_reserved_slots_are_for_the_urgent() -> None:
    engine = CheckedEngine(config(max_num_seqs=4, reserved_slots=2, order="fcfs"))
    ordinary = [engine.add([i], 30) for i in range(4)]
    engine.step()
    assert [r.status for r in ordinary] == [RequestStatus.RUNNING] * 2 + [RequestStatus.WAITING] * 2
    urgent = [engine.add([9 + i], 30, priority=-1) for i in range(3)]
    engine.step()
    assert [r.status for r in urgent] == [RequestStatus.RUNNING] * 2 + [RequestStatus.WAITING]
    engine.scheduler.live_cap = 1
    engine.run()


def test_one_place_is_left_for_the_ordinary_however_low_the_cap() -> None:
    engine = CheckedEngine(config(max_num_seqs=4, reserved_slots=3, order="fcfs"), live_cap=2)
    engine.add([1], 5)
    engine.step()
    assert len(engine.scheduler.running) == 1
    engine.run()
