"""When requests are admitted: at every step, in whole batches, in batches that are put off."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine

from paternoster_engine.core.config import SchedulerConfig


def config(**changes: int | float | bool | str) -> SchedulerConfig:
    values = {"max_num_seqs": 4, "max_batched_tokens": 64, "max_model_len": 64, "block_size": 4, "num_blocks": 400}
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["static", "dynamic"]),
    st.lists(st.integers(1, 20), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(4, 64),
)
def test_i17_a_whole_batch_drains_before_the_next(mode: str, outputs: list[int], seqs: int, budget: int) -> None:
    engine = CheckedEngine(config(max_num_seqs=seqs, mode=mode, max_batched_tokens=max(budget, seqs), batch_wait=2.0))
    for output in outputs:
        engine.add([1, 2, 3], output)
    members: set[str] = set()
    while engine.scheduler.has_work:
        before = {request.request_id for request in engine.scheduler.running}
        engine.step()
        if before:
            assert {r.request_id for r in engine.scheduler.running} <= members, (
                "somebody was admitted while the batch ran"
            )
        else:
            members = {r.request_id for r in engine.scheduler.running} | {
                output.request.request_id for output in engine.outputs
            }


def test_a_batch_is_put_off_until_enough_wait() -> None:
    engine = CheckedEngine(config(mode="dynamic", batch_size=3, batch_wait=1000.0))
    engine.add([1], 2)
    engine.add([2], 2)
    for _ in range(5):
        assert not engine.step()
    engine.add([3], 2)
    assert len(engine.step().scheduled) == 3


def test_a_batch_is_put_off_until_the_oldest_has_waited_long_enough() -> None:
    engine = CheckedEngine(config(mode="dynamic", batch_size=3, batch_wait=4.0))
    engine.add([1], 2)
    admitted = [bool(engine.step()) for _ in range(4)]
    assert admitted == [False, False, False, True]
    engine.run()


def test_a_dynamic_batch_without_a_size_is_made_when_all_slots_are_taken() -> None:
    engine = CheckedEngine(config(mode="dynamic", batch_wait=1000.0))
    for i in range(4):
        assert not engine.step()
        engine.add([i], 2)
    assert len(engine.step().scheduled) == 4


def test_prefill_first_computes_prompts_alone() -> None:
    engine = CheckedEngine(config(max_batched_tokens=8, prefill_first=True))
    first = engine.add([1] * 4, 10)
    engine.step()
    engine.step()
    engine.add([2] * 20, 3)
    before = len(first.output)
    for _ in range(3):
        (item,) = engine.step().scheduled
        assert item.request is not first
    assert len(first.output) == before
    assert [item.num_tokens for item in engine.step().scheduled] == [1, 1]
    engine.run()


def test_the_budget_is_filled_exactly_when_there_is_enough_to_do() -> None:
    engine = CheckedEngine(config(max_batched_tokens=16))
    for i in range(4):
        engine.add([i] * 30, 3)
    totals = [engine.step().num_tokens for _ in range(7)]
    assert totals == [16] * 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reserved_slots": 4}, "reserved_slots is 4: must be below max_num_seqs, which is 4"),
        ({"batch_wait": -1.0}, "batch_wait\n.* greater than or equal to 0"),
        ({"pause_lower_classes": True}, "pause_lower_classes is True: must be False without order 'priority'"),
        (
            {"pause_lower_classes": True, "order": "priority", "prefill_first": True},
            "pause_lower_classes is True: must be False with prefill_first",
        ),
        ({"preemption": "swap"}, "host_blocks is 0: must be at least 1 with preemption 'swap'"),
        ({"tenant_weights": {"a": 0.0}}, "tenant_weights\n.* is 0.0 for 'a': must be above 0"),
    ],
)
def test_settings_that_make_no_sense(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**changes)
