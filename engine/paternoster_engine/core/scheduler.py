"""Iteration-level scheduling (Orca) over a paged KV cache: one token budget a step, no prefill or decode phases.

Every request has tokens that are known and tokens that are computed; a step hands out the budget so that the second
number catches up with the first. Those that run come first, then those that wait. When requests may board, in which
order they wait, what memory an admission must leave and who loses its blocks is up to :mod:`.policies`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paternoster_engine.core.batch import Batch
from paternoster_engine.core.block_pool import BlockPool
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.counters import Counters
from paternoster_engine.core.deadlines import Deadlines
from paternoster_engine.core.displacement import Displacement
from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.gate import Gate
from paternoster_engine.core.integrity import check_requests
from paternoster_engine.core.kv_cache import KVCache
from paternoster_engine.core.policies.admission import make_admission, projected_peak_tokens
from paternoster_engine.core.policies.mode import make_mode
from paternoster_engine.core.policies.queues import make_queue
from paternoster_engine.core.policies.victim import VICTIMS
from paternoster_engine.core.preemption_cost import PreemptionCost
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.step_plan import StepPlan
from paternoster_engine.core.stopping import finish_reason
from paternoster_engine.core.swap import Swap

MAX_PREFIX_WAITS = 32
"""Requests a step passes over because others compute their next block, before it looks no further."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step gave to a request: a token, its end, or both; no token when the step failed."""

    request: Request
    token: int | None
    finish_reason: FinishReason | None


class Scheduler:
    """Decides who runs; knows nothing of models, tensors or time. Not thread-safe."""

    def __init__(self, config: SchedulerConfig, live_cap: int | None = None, *, pool: BlockPool | None = None) -> None:
        """``pool``: of ``config.num_blocks`` blocks, for who needs another than the one that is made here."""
        self.config = config
        self.pool = BlockPool(config.num_blocks) if pool is None else pool
        self.counters = Counters()
        self.kv = KVCache(self.pool, config.block_size, prefix_cache=config.prefix_cache)
        self.preemption_cost = PreemptionCost()
        self.swap = Swap(config, self.preemption_cost, self.counters)
        self._mode = make_mode(config)
        self._admission = make_admission(config)
        self._victim = VICTIMS[config.victim]()
        self._queue = make_queue(config)
        self._displacement = Displacement(self._queue, self._admission, self.kv)
        self._gate = Gate(config)
        self._deadlines = Deadlines()
        # A whole batch cannot wait for one of its own members.
        self._await_prefix = config.await_prefix and not self._mode.whole_batches
        self._meters_output = config.order == "fair-share" or self._gate.quota is not None
        self._requests: dict[str, Request] = {}
        self._running: list[Request] = []
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
        """Requests without blocks, next to be admitted first; preempted ones lead among equals."""
        return self._queue.waiting

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
        if request.request_id in self._requests:
            raise ValueError(f"request_id {request.request_id!r} is already in use")
        try:
            self._gate.admit(request, self.waiting)
        except AdmissionError as error:
            self.counters.rejected[error.reason] += 1
            raise
        self._requests[request.request_id] = request
        self._queue.insert(request)
        self._deadlines.watch(request)
        self.counters.requests += 1

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORT) -> Request | None:
        """End a request in whatever state it is; None when there is none of this name."""
        request = self._requests.get(request_id)
        if request is not None:
            self._finish(request, reason)
        return request

    def schedule(self, now: float) -> Batch:
        """Hand out one step's token budget. Requests past their deadline end first, before they cost a prefill."""
        self._step += 1
        plan = StepPlan(self.config.max_batched_tokens)
        for request in self._deadlines.expired(now):
            self._finish(request, FinishReason.TIMEOUT)
            plan.expired.append(request)
        boards = self._mode.boards(len(self._running), self._queue, now)
        if self.config.force_preempt_every and self._step % self.config.force_preempt_every == 0 and self._running:
            self._preempt(self._victim.choose(self._running), plan)
        if self.config.prefill_first:
            self._continue(plan, [request for request in self._running if request.prefilling])
            self._admit_waiting(plan, now, boards)
            if not plan.chunks:
                self._continue(plan, list(self._running))
        else:
            self._continue(plan, list(self._running))
            self._admit_waiting(plan, now, boards)
        return plan.seal(self._step, self.swap.take_copies(), self.counters)

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
            if self._meters_output:
                self._meter_output(request, now)
            reason = finish_reason(request, token, self.config.max_model_len)
            if reason is not None:
                self._finish(request, reason)
            outputs.append(StepOutput(request, token, reason))
        return outputs

    def fail(self, batch: Batch) -> list[Request]:
        """The step could not be computed: end its requests with an error and go on with the others."""
        failed = [item.request for item in batch.scheduled if not item.request.finished]
        # Whether the step's copies were made is not known either.
        torn = {block for _, block in batch.swap_in}
        failed += [r for r in self._running if r not in failed and not torn.isdisjoint(r.block_ids)]
        for request in batch.preempted:
            self.swap.drop(request)
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
        self.swap.check_integrity(self._requests.values(), self.config.host_blocks)
        check_requests(self.config, self._requests.values(), self._running, self.waiting)

    def _continue(self, plan: StepPlan, requests: Sequence[Request]) -> None:
        """Let ``requests``, which run, catch up with their tokens; whoever must makes room."""
        block_size, running, chunks = self.config.block_size, RequestStatus.RUNNING, plan.chunks
        for request in requests:
            budget = plan.budget
            if budget == 0 or request.status is not running:
                continue
            computed = request.num_computed
            count = len(request.prompt) + len(request.output) - computed
            if count > budget:
                count = budget
            needed = computed + count
            # Most steps stay within the last block: nothing is asked of the pool then.
            while needed > len(request.block_ids) * block_size and not self.kv.grow(request, needed):
                victim = self._victim.choose(self._no_more_important(request))
                self._preempt(victim, plan)
                if victim is request:
                    break
            else:
                chunks[request] = count
                plan.budget -= count

    def _no_more_important(self, request: Request) -> Sequence[Request]:
        """Running requests that may be preempted for ``request``: those below its class, else its equals and itself."""
        if not self.config.uses_priority:
            return self._running
        below = [other for other in self._running if other.priority > request.priority]
        return below or [other for other in self._running if other.priority == request.priority]

    def _admit_waiting(self, plan: StepPlan, now: float, boards: bool) -> None:
        """Admit in the queue's order until one does not fit.

        A step that preempted for want of blocks admits nobody; one that displaces admits nobody after that.
        """
        if plan.preempted or not boards:
            return
        waits = 0
        for request in self._queue.candidates():
            full = len(self._running) >= self._live_cap
            if (full and not self._queue.displaces) or (plan.budget == 0 and not self._mode.whole_batches):
                return
            if self._needs_reserved_slot(request):
                continue
            prefix = self.kv.find_prefix(request)
            if self._await_prefix and not request.host_block_ids and self.kv.awaits(request, prefix):
                self.counters.prefix_waits += 1
                waits += 1
                if waits == MAX_PREFIX_WAITS:
                    return
                continue
            new = self.kv.new_blocks(request, prefix)
            if not full and self._admission.admits(request, self._running, new, self.pool.num_available):
                self._admit(request, prefix, plan, now)
                continue
            displaced = self._displacement.victims_for(request, prefix, self._running)
            if displaced:
                for victim in displaced:
                    self._preempt(victim, plan)
                self.counters.displacements += len(displaced)
                self._admit(request, prefix, plan, now)
            return

    def _needs_reserved_slot(self, request: Request) -> bool:
        reserved = self.config.reserved_slots
        if reserved == 0 or request.priority < 0:
            return False
        ordinary = sum(other.priority >= 0 for other in self._running)
        return ordinary >= max(1, self._live_cap - reserved)

    def _admit(self, request: Request, prefix: list[int], plan: StepPlan, now: float) -> None:
        self._queue.remove(request)
        self.kv.admit(request, prefix)
        self._running.append(request)
        request.status = RequestStatus.RUNNING
        request.num_cached = request.num_computed = len(prefix) * self.config.block_size
        if request.host_block_ids:
            request.num_computed = self.swap.restore(request, len(prefix))
        self._count_admission(request, now)
        plan.give(request)

    def _preempt(self, request: Request, plan: StepPlan) -> None:
        """Take all blocks of a running request and put it back into the queue."""
        plan.take_back(request)
        plan.preempted.append(request)
        self._running.remove(request)
        self.swap.save(request)
        self.kv.release(request)
        request.num_computed = request.num_cached = 0
        request.status = RequestStatus.PREEMPTED
        self.counters.preemptions += 1
        self.counters.requests_preempted += request.num_preemptions == 0
        request.num_preemptions += 1
        self._deadlines.watch(request)
        self._queue.insert(request)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
            self.kv.release(request)
        else:
            self._queue.remove(request)
            self.swap.drop(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        del self._requests[request.request_id]
        self.counters.finished[reason] += 1

    def _meter_output(self, request: Request, now: float) -> None:
        self._queue.sampled(request)
        if self._gate.quota is not None:
            self._gate.quota.charge(request, 1, now)

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
            self._queue.admitted(request)
