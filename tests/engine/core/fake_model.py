"""A model that is a hash of everything before: one wrong, missing or foreign token in the cache changes what it says.

Its KV cache is a dictionary of (block, offset) -> (position, token). Each step writes the chunk's tokens there, then
reads the whole history back through the block table, as attention would, and compares it with the request.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import count

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.logprobs import TokenLogprobs
from paternoster_engine.core.request import Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler, StepOutput

VOCABULARY = 50

Slots = dict[tuple[int, int], tuple[int, int]]
"""(block, offset) -> (position, token)."""


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
        self._cache: Slots = {}
        self._host: Slots = {}

    def execute(self, batch: Batch) -> list[int | None]:
        for block, host in batch.swap_out:
            self._copy(self._cache, block, self._host, host)
        for host, block in batch.swap_in:
            self._copy(self._host, host, self._cache, block)
        for item in batch.scheduled:
            for position in range(item.start, item.stop):
                token = item.request.tokens(position, position + 1)[0]
                self._cache[self._slot(item.request, position)] = (position, token)
            self._tell(item)
        return [self._sample(item.request, item.stop) if item.samples else None for item in batch.scheduled]

    def _tell(self, item: ScheduledRequest) -> None:
        """Of each prompt token after one of the chunk, once."""
        request = item.request
        if request.params.prompt_logprobs is None:
            return
        told = request.prompt_logprobs
        for position in range(item.start, min(item.stop, request.num_prompt - 1)):
            assert position <= len(told), f"{request.request_id} was not told of token {len(told) + 1}"
            if position == len(told):
                told.append(TokenLogprobs(request.prompt[position + 1], -1.0, 1, ()))

    def _sample(self, request: Request, stop: int) -> int:
        history = [self._cache[self._slot(request, position)] for position in range(stop)]
        assert history == list(enumerate(request.tokens(0, stop))), f"{request.request_id} reads what it did not write"
        return next_token([token for _, token in history])

    def _copy(self, source: Slots, block: int, target: Slots, other: int) -> None:
        """A whole block, so that nothing of what was there before is left."""
        for offset in range(self._block_size):
            target.pop((other, offset), None)
            if (block, offset) in source:
                target[other, offset] = source[block, offset]

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
        self._names = count()

    def add(
        self,
        prompt: list[int],
        max_tokens: int,
        *,
        ignore_eos: bool = True,
        priority: int = 0,
        tenant: str = "",
        patience: float | None = None,
        prompt_logprobs: int | None = None,
    ) -> Request:
        """Queue a request; ``patience``: seconds until its deadline."""
        params = SamplingParams(
            max_tokens=max_tokens, temperature=0.0, ignore_eos=ignore_eos, prompt_logprobs=prompt_logprobs
        )
        deadline = None if patience is None else self.now + patience
        request = Request(
            f"r{next(self._names)}",
            prompt,
            params,
            arrival=self.now,
            priority=priority,
            tenant=tenant,
            deadline=deadline,
        )
        self.now += 0.001
        self.scheduler.add(request)
        return request

    def step(self) -> Batch:
        scheduler = self.scheduler
        cap, running = scheduler.live_cap, set(scheduler.running)
        self.now += 1
        batch = scheduler.schedule(self.now)
        self.batches.append(batch)
        assert batch.num_tokens <= scheduler.config.max_batched_tokens
        assert all(item.num_tokens >= 1 and item.stop <= item.request.num_tokens for item in batch.scheduled)
        assert len(scheduler.running) <= max(cap, len(running)), "admitted above the live cap"
        self._check_admissions(batch, [r for r in scheduler.running if r not in running])
        self._check_deadlines(batch)
        self._check_sharing()
        scheduler.check_integrity()
        # Steps that take longer with each token, so that preemption by measured cost has something to go by.
        scheduler.preemption_cost.observe_step(batch.num_tokens, 0.01 + 0.002 * batch.num_tokens)
        self.outputs += scheduler.update(batch, self.model.execute(batch), self.now)
        scheduler.check_integrity()
        return batch

    def run(self, limit: int = 20_000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError(f"work is left after {limit} steps: {[r.status for r in self.scheduler.waiting]}")

    def _check_admissions(self, batch: Batch, admitted: list[Request]) -> None:
        """Nobody boards in a step that preempted, but those who are more important than all who had to leave."""
        if not batch.preempted or not admitted:
            return
        config = self.scheduler.config
        assert config.order == "priority", "admitted in a step that preempted"
        assert not set(batch.preempted).intersection(admitted), "preempted and admitted at once"
        # The last one displaced the others; those before it only stood ahead of it.
        assert all(admitted[-1].priority < victim.priority for victim in batch.preempted)

    def _check_deadlines(self, batch: Batch) -> None:
        for item in batch.scheduled:
            request = item.request
            late = request.deadline is not None and request.deadline <= self.now
            decode = item.num_tokens == 1 and bool(request.output)
            assert not late or decode, f"{request.request_id} is past its deadline and takes a prefill"

    def _check_sharing(self) -> None:
        """A block in two tables is at the same place in both, and full of the same tokens."""
        size = self.scheduler.config.block_size
        content: dict[int, list[int]] = {}
        holders = Counter(block for request in self.scheduler.running for block in request.block_ids)
        for request in self.scheduler.running:
            for index, block in enumerate(request.block_ids):
                if holders[block] > 1:
                    history = request.tokens(0, (index + 1) * size)
                    assert len(history) == (index + 1) * size, "a block that is not full is shared"
                    assert content.setdefault(block, history) == history, "a block is shared by different beginnings"
