"""Iteration-level scheduling (Orca) over a paged KV cache: one token budget a step, no prefill or decode phases.

Every request has tokens that are known and tokens that are computed; a step hands out the budget so that the second
number catches up with the first. Those that run come first, then those that wait, in order of arrival.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.block_pool import BlockPool
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.counters import Counters
from paternoster_engine.core.errors import AdmissionError, NeverFits, PromptTooLong, QueueFull
from paternoster_engine.core.kv_cache import KVCache
from paternoster_engine.core.policies import LeastComputed, VictimPolicy, projected_peak_tokens
from paternoster_engine.core.request import FinishReason, Request, RequestStatus


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step gave to a request: a token, its end, or both; no token when the step failed."""

    request: Request
    token: int | None
    finish_reason: FinishReason | None


@dataclass(slots=True)
class _Step:
    """A batch in the making."""

    budget: int
    chunks: dict[Request, int]
    preempted: list[Request]


class Scheduler:
    """Decides who runs; knows nothing of models, tensors or time. Not thread-safe."""

    def __init__(
        self, config: SchedulerConfig, live_cap: int | None = None, victim: VictimPolicy | None = None
    ) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks)
        self.counters = Counters()
        self.kv = KVCache(self.pool, config.block_size, prefix_cache=config.prefix_cache)
        self._victim = victim or LeastComputed()
        self._requests: dict[str, Request] = {}
        self._running: list[Request] = []
        self._waiting: deque[Request] = deque()
        self._step = 0
        self._live_cap = config.max_num_seqs
        if live_cap is not None:
            self._live_cap = self._checked_cap(live_cap)

    @property
    def running(self) -> Sequence[Request]:
        """Requests that hold blocks, in order of admission."""
        return self._running

    @property
    def waiting(self) -> Sequence[Request]:
        """Requests without blocks, next to be admitted first; preempted ones lead."""
        return self._waiting

    @property
    def has_work(self) -> bool:
        return bool(self._requests)

    @property
    def live_cap(self) -> int:
        """How many requests may run at once. Lowering it stops admissions and never preempts."""
        return self._live_cap

    @live_cap.setter
    def live_cap(self, cap: int) -> None:
        self._live_cap, before = self._checked_cap(cap), self._live_cap
        self.counters.live_cap_changes += before != cap

    def add(self, request: Request) -> None:
        """Queue a request; raises :class:`AdmissionError`, with nothing changed, when it cannot or may not wait."""
        try:
            self._check_admissible(request)
        except AdmissionError as error:
            self.counters.rejected[error.reason] += 1
            raise
        self._requests[request.request_id] = request
        self._waiting.append(request)
        self.counters.requests += 1

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORT) -> Request | None:
        """End a request in whatever state it is; None when there is none of this name."""
        request = self._requests.get(request_id)
        if request is not None:
            self._finish(request, reason)
        return request

    def schedule(self, now: float) -> Batch:
        """Hand out one step's token budget."""
        self._step += 1
        step = _Step(self.config.max_batched_tokens, {}, [])
        batch_drained = not self._running
        if self.config.force_preempt_every and self._step % self.config.force_preempt_every == 0 and self._running:
            self._preempt(self._victim.choose(self._running), step)
        self._continue_running(step)
        if not step.preempted and (self.config.mode == "continuous" or batch_drained):
            self._admit_waiting(step, now)
        return self._seal(step)

    def update(self, batch: Batch, sampled: Sequence[int | None], now: float) -> list[StepOutput]:
        """Take the step's tokens in, one entry of ``sampled`` a scheduled item; requests ended since are skipped."""
        outputs = []
        for item, token in zip(batch.scheduled, sampled, strict=True):
            request = item.request
            if request.finished:
                continue
            self.kv.keep(request, item.stop)
            if not item.samples:
                continue
            assert token is not None, f"request {request.request_id} was to be sampled and was not"
            request.output.append(token)
            request.first_token = now if request.first_token is None else request.first_token
            request.last_token = now
            self.counters.generation_tokens += 1
            reason = self._stop_reason(request, token)
            if reason is not None:
                self._finish(request, reason)
            outputs.append(StepOutput(request, token, reason))
        return outputs

    def fail(self, batch: Batch) -> list[Request]:
        """The step could not be computed: end its requests with an error and go on with the others."""
        failed = [item.request for item in batch.scheduled if not item.request.finished]
        for request in failed:
            self._finish(request, FinishReason.ERROR)
        return failed

    def reset_prefix_cache(self) -> int:
        """Forget all cached content; returns how many blocks became free of it."""
        return self.pool.forget_all()

    def projected_peak(self) -> float:
        """Largest share of the pool the running requests can come to need; above 1 preemption is possible."""
        peak = projected_peak_tokens(self._running, self.config.max_model_len)
        return peak / (self.config.num_blocks * self.config.block_size)

    def check_integrity(self) -> None:
        """Raise ``AssertionError`` unless every block and every request is where it should be."""
        self.pool.check_integrity(request.block_ids for request in self._requests.values())
        assert len(self._running) <= self.config.max_num_seqs
        assert {id(r) for r in self._requests.values()} == {id(r) for r in [*self._running, *self._waiting]}
        assert len(self._requests) == len(self._running) + len(self._waiting)
        for request in self._running:
            assert request.status is RequestStatus.RUNNING
            assert 0 <= request.num_cached <= request.num_computed <= request.num_tokens
            assert request.num_computed <= len(request.block_ids) * self.config.block_size
        for request in self._waiting:
            assert request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
            assert request.num_computed == 0
            assert not request.block_ids

    def _continue_running(self, step: _Step) -> None:
        for request in list(self._running):
            if request.status is not RequestStatus.RUNNING or step.budget == 0:
                continue
            count = min(request.num_uncomputed, step.budget)
            while not self.kv.grow(request, request.num_computed + count):
                victim = self._victim.choose(self._running)
                self._preempt(victim, step)
                if victim is request:
                    break
            else:
                step.chunks[request] = count
                step.budget -= count

    def _admit_waiting(self, step: _Step, now: float) -> None:
        # A static batch is chosen whole, however many steps its prompts take.
        whole = self.config.mode == "static"
        while self._waiting and (step.budget > 0 or whole) and len(self._running) < self._live_cap:
            request = self._waiting[0]
            prefix = self.kv.find_prefix(request)
            reserve = self.config.watermark_blocks if self._running else 0
            if not self.kv.admit(request, prefix, reserve=reserve):
                break
            self._waiting.popleft()
            self._running.append(request)
            request.status = RequestStatus.RUNNING
            request.num_cached = request.num_computed = len(prefix) * self.config.block_size
            self._count_admission(request, now)
            count = min(request.num_uncomputed, step.budget)
            if count > 0:
                step.chunks[request] = count
                step.budget -= count

    def _seal(self, step: _Step) -> Batch:
        """Count the step's tokens as computed: a later step may be planned before this one has run."""
        scheduled = []
        for request, count in step.chunks.items():
            start, stop = request.num_computed, request.num_computed + count
            scheduled.append(ScheduledRequest(request, start, count, samples=stop == request.num_tokens))
            self.counters.computed_tokens += count
            self.counters.recomputed_tokens += max(0, min(stop, request.max_computed) - start)
            request.num_computed = stop
            request.max_computed = max(stop, request.max_computed)
        return Batch(self._step, tuple(scheduled), tuple(step.preempted))

    def _preempt(self, request: Request, step: _Step) -> None:
        """Take all blocks of a running request and put it back at the front, behind earlier arrivals."""
        step.budget += step.chunks.pop(request, 0)
        step.preempted.append(request)
        self._running.remove(request)
        self.kv.release(request)
        request.num_computed = request.num_cached = 0
        request.status = RequestStatus.PREEMPTED
        self.counters.preemptions += 1
        self.counters.requests_preempted += request.num_preemptions == 0
        request.num_preemptions += 1
        place = 0
        for other in self._waiting:
            if other.status is not RequestStatus.PREEMPTED or other.arrival > request.arrival:
                break
            place += 1
        self._waiting.insert(place, request)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
            self.kv.release(request)
        else:
            self._waiting.remove(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        del self._requests[request.request_id]
        self.counters.finished[reason] += 1

    def _stop_reason(self, request: Request, token: int) -> FinishReason | None:
        params = request.params
        if len(request.output) >= params.min_tokens:
            if token in params.stop_token_ids:
                return FinishReason.STOP
            if token in request.eos_token_ids and not params.ignore_eos:
                return FinishReason.STOP
        if len(request.output) >= params.max_tokens or request.num_tokens >= self.config.max_model_len:
            return FinishReason.LENGTH
        return None

    def _check_admissible(self, request: Request) -> None:
        if request.request_id in self._requests:
            raise ValueError(f"request_id {request.request_id!r} is already in use")
        if request.num_prompt == 0 or request.params.max_tokens < 1:
            raise ValueError("a request needs at least one prompt token and one output token")
        if request.max_total_tokens > self.config.max_model_len:
            raise PromptTooLong(request.num_prompt, request.params.max_tokens, self.config.max_model_len)
        # The last token sampled is never computed.
        blocks = self.kv.blocks_for(request.max_total_tokens - 1)
        if blocks > self.config.num_blocks:
            raise NeverFits(blocks, self.config.num_blocks, self.config.block_size)
        if len(self._waiting) >= self.config.max_queued_requests:
            raise QueueFull(len(self._waiting))

    def _checked_cap(self, cap: int) -> int:
        if not 1 <= cap <= self.config.max_num_seqs:
            raise ValueError(f"live_cap is {cap}: must be 1 to {self.config.max_num_seqs}, the capacity")
        return cap

    def _count_admission(self, request: Request, now: float) -> None:
        counters = self.counters
        if self.config.prefix_cache:
            counters.prefix_queries += request.num_tokens
            counters.prefix_hits += request.num_cached
        if request.first_scheduled is None:
            request.first_scheduled = now
            counters.prompt_tokens += request.num_prompt
            counters.cached_prompt_tokens += request.num_cached
            counters.queue_seconds += now - request.arrival
            counters.queue_count += 1
