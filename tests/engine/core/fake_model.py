"""A model that is a hash of everything before: one wrong, missing or foreign token in the cache changes what it says.

Its KV cache is a dictionary of (block, offset) -> (position, token). Each step writes the chunk's tokens there, then
reads the whole history back through the block table, as attention would, and compares it with the request.
"""

import zlib
from collections.abc import Sequence

from paternoster_engine.core.batch import Batch
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler, StepOutput

VOCABULARY = 50


def next_token(history: Sequence[int]) -> int:
    """What follows ``history``, greedily."""
    return zlib.crc32(repr(list(history)).encode()) % VOCABULARY


def unbatched(prompt: list[int], max_tokens: int, max_model_len: int) -> list[int]:
    """What the model says to ``prompt`` when nothing else runs."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < max_tokens and len(tokens) < max_model_len:
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class FakeModel:
    """A runner over a dictionary."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._cache: dict[tuple[int, int], tuple[int, int]] = {}

    def execute(self, batch: Batch) -> list[int | None]:
        for item in batch.scheduled:
            for position in range(item.start, item.stop):
                token = item.request.tokens(position, position + 1)[0]
                self._cache[self._slot(item.request, position)] = (position, token)
        return [self._sample(item.request, item.stop) if item.samples else None for item in batch.scheduled]

    def _sample(self, request: Request, stop: int) -> int:
        history = [self._cache[self._slot(request, position)] for position in range(stop)]
        assert history == list(enumerate(request.tokens(0, stop))), f"{request.request_id} reads what it did not write"
        return next_token([token for _, token in history])

    def _slot(self, request: Request, position: int) -> tuple[int, int]:
        block = request.block_ids[position // self._block_size]
        assert block != 0, "the null block was handed out"
        return block, position % self._block_size


class Ride:
    """A scheduler on the fake model, checked after every step."""

    def __init__(self, config: SchedulerConfig, live_cap: int | None = None) -> None:
        self.scheduler = Scheduler(config, live_cap)
        self.model = FakeModel(config.block_size)
        self.now = 0.0
        self.outputs: list[StepOutput] = []
        self.batches: list[Batch] = []

    def add(self, prompt: list[int], max_tokens: int, *, ignore_eos: bool = True) -> Request:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=ignore_eos)
        request = Request(f"r{self.now}-{id(object())}", prompt, params, arrival=self.now)
        self.now += 0.001
        self.scheduler.add(request)
        return request

    def step(self) -> Batch:
        scheduler = self.scheduler
        cap, running = scheduler.live_cap, len(scheduler.running)
        self.now += 1
        batch = scheduler.schedule(self.now)
        self.batches.append(batch)
        assert batch.num_tokens <= scheduler.config.max_batched_tokens
        assert all(item.num_tokens >= 1 and item.stop <= item.request.num_tokens for item in batch.scheduled)
        assert len(scheduler.running) <= max(cap, running), "admitted above the live cap"
        assert not (batch.preempted and len(scheduler.running) > running), "admitted in a step that preempted"
        scheduler.check_integrity()
        self.outputs += scheduler.update(batch, self.model.execute(batch), self.now)
        scheduler.check_integrity()
        return batch

    def run(self, limit: int = 20_000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError(f"work is left after {limit} steps: {[r.status for r in self.scheduler.waiting]}")
