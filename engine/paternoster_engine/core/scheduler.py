"""Iteration-level scheduling (Orca) over a paged KV cache: one token budget a step, no prefill or decode phases.

Every request has tokens that are known and tokens that are computed; a step hands out the budget so that the second
number catches up with the first. Those that run come first, then those that wait. When requests are admitted, in which
order they wait, what memory an admission must leave and which request is preempted is set by the configuration.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paternoster_contract.queueing.queue_wait import QueueWait
from paternoster_engine.core.admission.admission import SlotAdmission
from paternoster_engine.core.admission.preemption import Preemption, Swap
from paternoster_engine.core.admission.prompt_shares import PromptShares, find_cut_short
from paternoster_engine.core.admission.reservation import Slots, projected_peak_tokens
from paternoster_engine.core.admission.step_budget import StepBudget
from paternoster_engine.core.admission.validation import RequestValidation
from paternoster_engine.core.batch import Batch, BatchBuilder, StepOutput, StepResult
from paternoster_engine.core.branching.branched_request import BranchedRequest
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.kv.block_pool import BlockPool
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.model_drafts import Drafter
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.speculation import Speculation
from paternoster_engine.core.stats import Counters
from paternoster_engine.core.step_update import StepUpdate
from paternoster_engine.core.waiting.waiting_queue import Deadlines, WaitingQueue, make_queue


class Scheduler:
    """Decides which requests run, without models, tensors or a clock. Not thread-safe."""

    def __init__(
        self,
        config: SchedulerConfig,
        live_cap: int | None = None,
        *,
        token_budget: int | None = None,
        pool: BlockPool | None = None,
        queue: WaitingQueue | None = None,
        drafter: Drafter | None = None,
        ticks_per_second: int = 1,
    ) -> None:
        """``live_cap`` and ``token_budget``: at first; None for the capacity.

        ``pool``: of ``config.num_blocks`` blocks; None for a new :class:`BlockPool`. ``queue``: None for the one of
        ``config.order``. ``drafter``: proposes tokens with
        ``speculative: draft``. ``ticks_per_second``: unit of the times that callers pass.
        """
        self.config = config
        self.drafter = drafter
        self.pool = BlockPool(config.num_blocks) if pool is None else pool
        self.counters = Counters()
        self.kv = KVCache(self.pool, KVGroups(config), prefix_cache=config.prefix_cache)
        self.swap = Swap(config, self.counters)
        self._running: list[Request] = []
        self._queue = make_queue(config) if queue is None else queue
        self._shares = PromptShares(self._queue)
        self.validation = RequestValidation(config, self._queue)
        self._deadlines = Deadlines()
        self.queue_wait = QueueWait(ticks_per_second)
        self._requests: dict[str, Request] = {}
        self._slots = Slots(config, self._running, live_cap)
        self._preemption = Preemption(
            config, self._queue, self._running, self._slots, self.kv, self.swap, self._deadlines, self.counters
        )
        self._admission = SlotAdmission(
            config,
            self._queue,
            self._running,
            self._slots,
            self.kv,
            self.swap,
            self.counters,
            self._preemption,
            self._shares,
        )
        self._speculation = Speculation(config, self.kv, self.counters, drafter)
        self._step_update = StepUpdate(
            config,
            self._queue,
            self._running,
            self._slots,
            self.kv,
            self.validation.quota,
            self._speculation,
            self.counters,
            self._finish_request,
        )
        budget = config.max_batched_tokens if token_budget is None else self._check_budget(token_budget)
        self._step_budget = StepBudget(budget)
        self._step = 0

    @property
    def running(self) -> Sequence[Request]:
        """Sequences that hold blocks, in order of admission; those of one request stand next to each other."""
        return self._running

    @property
    def waiting(self) -> Sequence[Request]:
        """Requests without blocks, next to be admitted first; preempted ones lead among equals."""
        return self._queue.waiting

    @property
    def num_deferred(self) -> int:
        """Waiting requests that the last step passed over for another reason than room."""
        return self._admission.num_deferred

    @property
    def has_work(self) -> bool:
        return bool(self._requests)

    @property
    def live_cap(self) -> int:
        """How many sequences may run at once. Lowering it stops admissions and never preempts.

        A request with more sequences than that runs alone.
        """
        return self._slots.live_cap

    @live_cap.setter
    def live_cap(self, cap: int) -> None:
        before, self._slots.live_cap = self._slots.live_cap, cap
        self.counters.live_cap_changes += before != cap

    @property
    def token_budget(self) -> int:
        """Most tokens of the next step, but never less than one for each sequence that runs."""
        return self._step_budget.live

    @token_budget.setter
    def token_budget(self, tokens: int) -> None:
        before, self._step_budget.live = self._step_budget.live, self._check_budget(tokens)
        self.counters.token_budget_changes += before != tokens

    def bound_shared_steps(self, tokens: int | None) -> None:
        """Limit steps to ``tokens`` while several tenants are served, if the order is by tenant."""
        self._step_budget.shared = tokens if self.config.order == "fair-share" else None

    def _check_budget(self, tokens: int) -> int:
        if not 1 <= tokens <= self.config.max_batched_tokens:
            raise ValueError(f"token_budget is {tokens}: must be 1 to {self.config.max_batched_tokens}, the capacity")
        return tokens

    def add(self, *requests: Request, following: Sequence[Request] = ()) -> None:
        """Queue the requests of one call; it adds the ``following`` ones later, or has their quota settled.

        Raises :class:`AdmissionError`, with nothing changed, when one of them cannot or may not wait.
        """
        for request in requests:
            if request.request_id in self._requests:
                raise ValueError(f"request_id {request.request_id!r} is already in use")
        try:
            self.validation.check_call(requests, following, self.queue_wait.queue_pace(requests[0].spec.arrival))
        except AdmissionError as error:
            self.counters.rejected[error.reason] += 1
            raise
        if self.config.whole_prompts:
            self._shares.set_due_times(requests)
        if not self._queue.count_waiting():
            self.queue_wait.start_queue(requests[0].spec.arrival)
        for request in requests:
            if request.branch_selector is not None:
                request.branches = BranchedRequest(request, request.branch_selector, self.kv)
            self._requests[request.request_id] = request
            self._queue.insert(request)
            self._deadlines.watch(request)
            self._step_budget.add_request(request.spec.tenant)
            self.counters.requests += 1

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORT) -> Request | None:
        """End a request in whatever state it is; None when there is none of this name."""
        request = self._requests.get(request_id)
        if request is not None:
            self._finish_request(request, reason)
        return request

    def schedule(self, now: float) -> Batch:
        """Schedule one step within its token budget. Requests past their deadline end first."""
        self._step += 1
        self.pool.residency.now = now
        # Each running sequence must advance, even after the budget was lowered.
        budget = self._step_budget.limit_tokens(self._step, len(self._running))
        builder = BatchBuilder(min(budget, self.config.max_batched_tokens), self.config.whole_prompts)
        for request in self._deadlines.pop_expired(now):
            self._finish_request(request, FinishReason.TIMEOUT)
            builder.expired.append(request)
        admitted_before = self.counters.queue_count
        if self.config.force_preempt_every and self._step % self.config.force_preempt_every == 0 and self._running:
            self._preemption.force_preemption(builder)
        if self.config.prefill_first:
            self._schedule_requests(builder, [request for request in self._running if request.prefilling], now)
            if not builder.chunks:
                self._schedule_requests(builder, list(self._running), now, admits=False)
        elif self.config.pause_lower_classes:
            self._schedule_by_class(builder, now)
        else:
            self._schedule_requests(builder, list(self._running), now)
        self.queue_wait.admit(self.counters.queue_count - admitted_before, now)
        self._speculation.extend_batch(builder)
        swaps, copies = self.swap.take_copies(), self.kv.take_copies()
        batch = builder.build(self._step, swaps, copies, ahead=self.config.overlap)
        self.counters.computed_tokens += builder.computed
        self.counters.recomputed_tokens += builder.recomputed
        return batch

    def update(self, batch: Batch, result: StepResult, now: float) -> list[StepOutput]:
        """Apply the result of a step; requests that ended since are skipped."""
        return self._step_update.apply_result(batch, result, now)

    def can_plan_ahead(self, batch: Batch) -> bool:
        """Whether all that is unknown of the step after ``batch`` is its tokens.

        Branches of a request with several sequences depend on the result, and so do proposals after its new tokens.
        """
        load = len(batch.scheduled)
        return all(
            item.request.branches is None
            and not item.proposed
            and not self._speculation.needs_new_tokens(item.request, load)
            for item in batch.scheduled
        )

    def without_finished(self, batch: Batch) -> Batch:
        """``batch``, planned before the last step ended, without the rows of requests that ended with it."""
        scheduled = tuple(item for item in batch.scheduled if not item.request.leader.finished)
        return batch if len(scheduled) == len(batch.scheduled) else replace(batch, scheduled=scheduled)

    def fail_step(self, batch: Batch, planned: Batch | None = None) -> list[Request]:
        """End a failed step's requests with an error; ``planned``: the step after it, if there is one already."""
        # Whether the step's copies were made is not known either.
        torn = {block for _, block in (*batch.swap_in, *batch.copies)}
        sequences = [item.request for item in batch.scheduled]
        if planned is not None:
            # It may read blocks that this one was to save or to compute.
            torn.update(block for _, block in (*planned.swap_in, *planned.copies))
            torn.update(block for sequence in sequences for block in self.kv.find_uncached_blocks(sequence))
        sequences += [sequence for sequence in self._running if not torn.isdisjoint(sequence.block_table.block_ids)]
        failed = [request for request in dict.fromkeys(s.leader for s in sequences) if not request.finished]
        for request in batch.preempted:
            self.swap.discard(request)
        for request in failed:
            self._finish_request(request, FinishReason.ERROR)
        return failed

    def reset_prefix_cache(self) -> int:
        """Empty the prefix cache; returns how many blocks became free."""
        return self.pool.clear_cache()

    def projected_peak(self) -> float:
        """Largest share of the pool the running requests can come to need; above 1 preemption is possible."""
        peak = projected_peak_tokens(self._running, self.config.max_model_len, self.kv.groups)
        return peak / (self.config.num_blocks * self.config.block_size)

    def check_integrity(self) -> None:
        """Raise ``AssertionError`` unless every block and every request is where it should be."""
        sequences = [sequence for request in self._requests.values() for sequence in request.sequences]
        self.kv.check_integrity(sequences)
        self.swap.check_integrity(self._requests.values(), self.config.host_blocks)
        running, waiting = self._running, self.waiting
        assert len(running) <= self.config.max_num_seqs
        assert {id(r) for r in sequences} == {id(r) for r in [*running, *waiting]}
        assert len(sequences) == len(running) + len(waiting)
        assert all(request.status is RequestStatus.RUNNING for request in running)
        assert all(request.status is not RequestStatus.RUNNING for request in waiting)
        for request in sequences:
            request.check_invariants()

    def build_stats(self, *, ticks_per_second: int = 1) -> dict[str, Any]:
        """Gauges and counters by their names in ``paternoster_contract.stats.EngineStats``.

        May be read while another thread steps the scheduler: each number is right, but they may be of two neighbouring
        steps. ``ticks_per_second`` is the unit of the times that the scheduler was given.
        """
        return {
            "capacity": self.config.max_num_seqs,
            "live_cap": self.live_cap,
            "max_batched_tokens": self.config.max_batched_tokens,
            "max_model_len": self.config.max_model_len,
            "token_budget": self.token_budget,
            "max_queue_milliseconds": self.queue_wait.max_milliseconds,
            "running": len(self._running),
            "waiting": len(self.waiting),
            **self.kv.build_stats(),
            "kv_projected_peak": self.projected_peak(),
            **self.counters.build_totals(ticks_per_second),
        }

    def _schedule_requests(
        self, builder: BatchBuilder, requests: Sequence[Request], now: float, *, admits: bool = True
    ) -> None:
        """Schedule ``requests``, which run, and admit waiting ones beside them."""
        prompts = self._shares.sort_prompts(self._schedule_decodes(builder, requests))
        reserved, cut_short = 0, find_cut_short(prompts, builder.budget)
        if cut_short is not None and admits and not builder.preempted:
            builder.backlog = sum(prompt.num_expected - prompt.num_computed for prompt in prompts) - builder.budget
            reserved = min(builder.budget, self._admission.find_passing_prompts(builder, cut_short))
        self._schedule_prompts(builder, prompts, reserved)
        if admits:
            self._admission.admit_waiting(builder, now)
        if cut_short is not None and builder.budget:
            # A request that was to pass was not admitted, or another one was preempted.
            self._schedule_prompts(builder, prompts)

    def _schedule_decodes(self, builder: BatchBuilder, requests: Sequence[Request]) -> list[Request]:
        """Schedule one token of each of ``requests``, which run; returns those that have more to compute."""
        prompts: list[Request] = []
        max_model_len = self.config.max_model_len
        running, chunks = RequestStatus.RUNNING, builder.chunks
        for request in requests:
            if request.status is not running:
                continue
            computed = request.num_computed
            pending = request.num_pending
            count = request.num_prompt + len(request.output) + pending - computed
            if count > 1:
                prompts.append(request)
                continue
            if count == 0 or builder.budget == 0 or (pending and request.ends_with_pending(max_model_len)):
                # It waits for the other sequences of its request, or the step under way ends it.
                continue
            # Most steps stay within the last block and need none of the pool.
            needed = computed + 1
            table = request.block_table
            if (table.shares_tail or needed > table.num_writable) and not self._make_room(request, needed, builder):
                continue
            chunks[request] = 1
            builder.budget -= 1
        return prompts

    def _schedule_prompts(self, builder: BatchBuilder, prompts: Sequence[Request], reserved: int = 0) -> None:
        """Schedule ``prompts`` in order with what is left of the budget, except ``reserved`` tokens."""
        for request in prompts:
            budget = builder.budget - reserved
            if budget <= 0:
                return
            if request.status is not RequestStatus.RUNNING:
                continue
            given = builder.chunks.get(request, 0)
            stop = min(request.num_expected, request.num_computed + given + budget)
            if self._make_room(request, stop, builder):
                count = stop - request.num_computed
                builder.chunks[request] = count
                builder.budget -= count - given
                self._shares.count_service(request, count - given, stop)

    def _make_room(self, request: Request, num_tokens: int, builder: BatchBuilder) -> bool:
        """Allocate blocks for a running request's first ``num_tokens`` tokens; False when it was preempted itself.

        A step that has admitted preempts no request for blocks: False where too few are free.
        """
        table = request.block_table
        if builder.admitted:
            return not table.shares_tail and (
                num_tokens <= table.num_writable or self.kv.grow_table(request, num_tokens)
            )
        while (table.shares_tail or num_tokens > table.num_writable) and not self.kv.grow_table(request, num_tokens):
            self._preemption.make_room(request, builder)
            if request.status is not RequestStatus.RUNNING:
                return False
        return True

    def _schedule_by_class(self, builder: BatchBuilder, now: float) -> None:
        """Schedule no request below the class of the most important prompt."""
        prompts = min((request.spec.priority for request in self._running if request.prefilling), default=math.inf)
        builder.lowest_class = min(prompts, self._admission.next_priority())
        # A prompt of a lower class that was admitted before must not take the budget from tokens of those above it.
        first = [request for request in self._sort_by_class() if builder.serves_class(request)]
        self._schedule_requests(builder, first, now)
        if builder.chunks.keys() <= {request for request in first if not request.prefilling}:
            # The next waiting request did not fit.
            builder.lowest_class = prompts
            rest = [r for r in self._sort_by_class() if builder.serves_class(r) and r not in builder.chunks]
            self._schedule_requests(builder, rest, now, admits=False)

    def _sort_by_class(self) -> list[Request]:
        return sorted(self._running, key=lambda request: request.spec.priority)

    def _finish_request(self, request: Request, reason: FinishReason) -> None:
        if request.status is RequestStatus.RUNNING:
            for sequence in request.sequences:
                self._running.remove(sequence)
                self.kv.release(sequence)
            self._slots.promised.discard(request)
            self._queue.end_running(request)
        else:
            self._queue.remove(request)
            self.swap.discard(request)
        self.validation.quota.settle_request(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        del self._requests[request.request_id]
        self._step_budget.remove_request(request.spec.tenant, self._step)
        self.counters.finished[reason] += 1
