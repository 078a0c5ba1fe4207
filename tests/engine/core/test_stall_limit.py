"""An engine that is only busy is never called hung: an hour of overload by the model of a replica, in virtual time."""

import random

import pytest

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.step_work import StepWork
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import SynchronousRunner

CONFIG = SchedulerConfig(
    max_num_seqs=32,
    max_batched_tokens=2048,
    max_model_len=32_768,
    block_size=16,
    num_blocks=8192,
    max_queued_requests=64,
)
HOUR = 3600.0


class ModelledRunner(SynchronousRunner):
    """Takes the time of the model of a replica, each step up to six times as long by chance, and checks the limit."""

    def __init__(self, rng: random.Random) -> None:
        self.now = 0.0
        self.alarms: list[tuple[float, float]] = []
        self.num_limited = 0
        self.longest = 0.0
        self._rng = rng
        self.engine: Engine | None = None

    def execute(self, batch: Batch) -> StepResult:
        work = StepWork.from_batch(batch)
        seconds = 0.02 + 0.8e-3 * work.prefill_tokens + 1e-3 * work.decode_sequences
        seconds += 1e-7 * work.kv_tokens + 4e-8 * work.prefill_pairs
        seconds *= self._rng.choice((1, 1, 1, 1.3, 2, 6))
        assert self.engine is not None
        limit = self.engine.stall_limit.seconds
        if limit is not None:
            self.num_limited += 1
            if seconds > limit:
                self.alarms.append((seconds, limit))
        self.now, self.longest = self.now + seconds, max(self.longest, seconds)
        return StepResult([5 if item.samples else None for item in batch.scheduled], {}, {}, {})


@pytest.mark.parametrize("seed", range(3))
def test_no_alarm_in_an_hour_of_overload(seed: int) -> None:
    rng = random.Random(seed)
    runner = ModelledRunner(rng)
    engine = runner.engine = Engine(Scheduler(CONFIG), runner, lambda: runner.now)
    number = 0
    while runner.now < HOUR:
        while len(engine.scheduler.waiting) < 32:
            number += 1
            prompt = [rng.randrange(1000)] * rng.choice((20, 200, 2000, 30_000))
            params = SamplingParams(max_tokens=rng.choice((10, 100, 1000)), ignore_eos=True)
            engine.scheduler.add(Request(RequestSpec(f"r{number}", prompt, params, arrival=runner.now)))
        engine.step()
    assert runner.alarms == []
    assert runner.longest > 10  # longer than the least limit: a fixed one of 8 s would have raised alarms
    assert runner.num_limited > 1000
