"""The bound of the queue by time: what would wait longer is refused, and no slot stays empty for it."""

import pytest

from paternoster_contract.queueing.queue_wait import QueueWait
from paternoster_engine.core.batch import StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import QueueTooSlow
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler

STEP = 0.5
TOKENS = 4
"""Tokens of an answer: an engine of one slot admits one request in two seconds."""


class Clocked:
    """An engine of one slot whose steps take half a second."""

    def __init__(self, *, limit: int, **config: str) -> None:
        values = {"max_num_seqs": 1, "max_batched_tokens": 64, "max_model_len": 64, "block_size": 4, "num_blocks": 99}
        self.scheduler = Scheduler(SchedulerConfig(**{**values, **config}))  # type: ignore[arg-type]
        self.scheduler.queue_wait.max_milliseconds = limit
        self.now, self.count, self.waits = 0.0, 0, list[float]()

    def add(self, tenant: str = "") -> Request:
        self.count += 1
        params = SamplingParams(max_tokens=TOKENS, ignore_eos=True)
        request = Request(RequestSpec(f"r{self.count}", [1, 2], params, arrival=self.now, tenant=tenant))
        self.scheduler.add(request)
        return request

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            batch = self.scheduler.schedule(self.now)
            self.waits += [self.now - item.request.spec.arrival for item in batch.scheduled if item.start == 0]
            self.now += STEP
            self.scheduler.update(batch, StepResult([5] * len(batch.scheduled)), self.now)

    def offer(self, tenant: str = "") -> QueueTooSlow | None:
        try:
            self.add(tenant)
        except QueueTooSlow as error:
            return error
        return None


def test_an_overloaded_engine_answers_as_much_as_it_can_and_each_in_time() -> None:
    """Three times what one slot answers: without the limit the wait grows for ever."""
    engine, refused = Clocked(limit=5000), 0
    for _ in range(300):
        refused += engine.offer() is not None
        engine.run(STEP if engine.count % 3 else 2 * STEP)
    # The pace is that of about the latest 16 admissions, and an admission comes with the end of an answer.
    assert max(engine.waits[32:]) <= 5.0 + TOKENS * STEP
    assert len(engine.waits) >= 0.95 * engine.now / (TOKENS * STEP), "no slot was empty"
    assert refused == engine.scheduler.counters.rejected["queue_too_slow"] > 100
    without = Clocked(limit=0)
    for _ in range(300):
        assert without.offer() is None
        without.run(STEP if without.count % 3 else 2 * STEP)
    assert max(without.waits) > 50


def test_a_refusal_names_the_wait_and_when_to_come_again() -> None:
    engine = Clocked(limit=5000)
    for _ in range(100):
        engine.offer()
        engine.run(STEP)
    while (error := engine.offer()) is None:
        pass
    assert "requests may wait for 5.0 s" in str(error)
    assert 1 <= error.retry_after <= 2 * TOKENS * STEP
    engine.run(2 * TOKENS * STEP)
    assert engine.offer() is None


def test_what_meets_an_empty_queue_is_never_refused() -> None:
    engine = Clocked(limit=5000)
    for _ in range(100):
        engine.offer()
        engine.run(STEP)
    engine.run(100)
    assert not engine.scheduler.waiting
    engine.scheduler.queue_wait.max_milliseconds = 1
    assert engine.offer() is None
    assert engine.offer() is not None


def test_a_tenant_with_less_than_its_part_of_the_queue_is_taken() -> None:
    engine = Clocked(limit=8000, order="fair-share")
    for _ in range(100):
        engine.offer("many")
        engine.run(STEP)
    assert engine.offer("many") is not None
    assert engine.offer("few") is None


def test_an_engine_that_admits_nothing_any_more_is_slow() -> None:
    pace = QueueWait()
    for second in range(100):
        pace.start_queue(float(second))
        pace.admit(1, second + 0.1)
    assert pace.seconds_between(99.1) == pytest.approx(0.1)
    assert pace.seconds_between(199.1) > 5
    assert pace.seconds_between(0.0) == pytest.approx(0.1), "a clock that was set back"


def test_the_limit_is_no_negative_number() -> None:
    with pytest.raises(ValueError, match="max_queue_milliseconds is -1: must be at least 0"):
        Clocked(limit=-1)
