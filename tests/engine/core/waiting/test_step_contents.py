"""What a step is filled with, and settings that exclude each other."""

import pytest
from tests.engine.core.fake_model import CheckedEngine

from paternoster_engine.core.config import SchedulerConfig


def config(**changes: int | float | bool | str) -> SchedulerConfig:
    values = {"max_num_seqs": 4, "max_batched_tokens": 64, "max_model_len": 64, "block_size": 4, "num_blocks": 400}
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


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
