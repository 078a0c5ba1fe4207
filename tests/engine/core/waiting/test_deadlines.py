"""A deadline ends a request before it costs a prefill, and never one that decodes."""

import pytest
from tests.engine.core.fake_model import CheckedEngine

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.waiting.waiting_queue import Deadlines


def config(**changes: int | float | bool | str) -> SchedulerConfig:
    values = {"max_num_seqs": 1, "max_batched_tokens": 8, "max_model_len": 60, "block_size": 4, "num_blocks": 40}
    return SchedulerConfig(**{**values, **changes})  # type: ignore[arg-type]


def test_who_waits_too_long_is_never_computed() -> None:
    engine = CheckedEngine(config())
    engine.add([1], 10)
    late = engine.add([2] * 8, 5, patience=4.0)
    batches = [engine.step() for _ in range(6)]
    assert late.finish_reason is FinishReason.TIMEOUT
    assert [batch.expired for batch in batches].count((late,)) == 1
    assert all(item.request is not late for batch in batches for item in batch.scheduled)
    assert engine.scheduler.counters.finished == {FinishReason.TIMEOUT: 1}
    engine.run()


def test_a_prompt_is_given_up_between_two_chunks() -> None:
    engine = CheckedEngine(config())
    long = engine.add([1] * 30, 5, patience=2.5)
    chunks = [engine.step().num_tokens for _ in range(3)]
    assert chunks == [8, 8, 0]
    assert long.finish_reason is FinishReason.TIMEOUT
    assert engine.scheduler.pool.num_used == 0


def test_who_decodes_goes_on() -> None:
    engine = CheckedEngine(config())
    request = engine.add([1], 10, patience=3.0)
    engine.run()
    assert request.finish_reason is FinishReason.LENGTH


def test_who_decoded_and_was_preempted_does_not_come_back() -> None:
    engine = CheckedEngine(config(max_num_seqs=2, num_blocks=8, max_model_len=30, prefix_cache=False))
    stays, leaves = engine.add([1] * 8, 20), engine.add([2] * 9, 20, patience=6.0)
    engine.run()
    assert stays.finish_reason is FinishReason.LENGTH
    assert leaves.finish_reason is FinishReason.TIMEOUT
    assert len(leaves.output) > 3


def test_those_that_ended_in_time_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paternoster_engine.core.waiting.waiting_queue.MIN_LIMIT", 8)
    deadlines = Deadlines()
    for i in range(100):
        request = Request(RequestSpec(f"r{i}", [1], SamplingParams(max_tokens=2), deadline=1000.0))
        deadlines.watch(request)
        request.status = RequestStatus.FINISHED
    assert len(deadlines._heap) <= 16
