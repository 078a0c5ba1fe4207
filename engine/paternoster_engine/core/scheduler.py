"""Iteration-level scheduling (Orca) over a paged KV cache: one token budget a step, no prefill or decode phases.

Every request has tokens that are known and tokens that are computed; a step hands out the budget so that the second
number catches up with the first. Those that run come first, then those that wait. When requests are admitted, in which
order they wait, what memory an admission must leave and which request is preempted is set by the configuration. All of
it is done for one lane after the other: see :mod:`core.admission.lanes`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from paternoster_contract.access.identity import Lane
from paternoster_contract.queueing.queue_wait import QueueWait
from paternoster_contract.stats import BatchLaneStats
from paternoster_engine.core.admission.admission import SlotAdmission
from paternoster_engine.core.admission.lanes import RequestLane, make_lane
from paternoster_engine.core.admission.preemption import Preemption, Swap
from paternoster_engine.core.admission.prompt_shares import find_cut_short
from paternoster_engine.core.admission.reservation import projected_peak_tokens
from paternoster_engine.core.admission.step_budget import StepBudget
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
from paternoster_engine.core.step_update import StepUpdate
from paternoster_engine.core.step_work import StepWork
from paternoster_engine.core.waiting.waiting_queue import Deadlines, WaitingQueue, make_queue

CACHE_SECONDS = 300
"""After which lower lanes may evict what no request of the first has used: as long as hosted APIs cache a prompt."""


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

        ``pool``: of ``config.num_blocks`` blocks; None for a new :class:`BlockPool`. ``queue``: of the first lane, None
        for the one of ``config.order``. ``drafter``: proposes tokens with
        ``speculative: draft``. ``ticks_per_second``: unit of the times that callers pass.
        """
        self.config = config
        self.drafter = drafter
        self.pool = BlockPool(config.num_blocks) if pool is None else pool
        self.kv = KVCache(self.pool, KVGroups(config), prefix_cache=config.prefix_cache)
        lanes = list[RequestLane]()
        for lane in Lane:
            own = make_queue(config) if queue is None or lanes else queue
            lanes.append(make_lane(lane, config, own, live_cap, tuple(lanes)))
        self.lanes: Sequence[RequestLane] = lanes
        """Lanes in their order; numbers of the scheduler are of the first unless they state otherwise."""
        self._first = lanes[0]
        self.counters = self._first.counters
        self.swap = Swap(config, self.counters)
        self._deadlines = Deadlines()
        self.queue_wait = QueueWait(ticks_per_second)
        self._cache_ticks = CACHE_SECONDS * ticks_per_second
        self._requests: dict[str, Request] = {}
        self._preemption = Preemption(config, lanes, self.kv, self.swap, self._deadlines)
        self._admissions = [SlotAdmission(config, lane, self.kv, self.swap, self._preemption) for lane in lanes]
        self._speculation = Speculation(config, self.kv, self.counters, drafter)
        self._step_update = StepUpdate(config, lanes, self.kv, self._speculation, self._finish_request)
        budget = config.max_batched_tokens if token_budget is None else self._check_budget(token_budget)
        self._step_budget = StepBudget(budget, by_tenant=config.order == "fair-share")
        self._step = 0

    @property
    def running(self) -> Sequence[Request]:
        """Sequences that hold blocks, in order of admission; those of one request stand next to each other."""
        return self._first.running

    @property
    def waiting(self) -> Sequence[Request]:
        """Requests without blocks, next to be admitted first; preempted ones lead among equals."""
        return self._first.queue.waiting

    @property
    def num_deferred(self) -> int:
        """Waiting requests that the last step passed over for another reason than room."""
        return self._admissions[0].num_deferred

    @property
    def has_work(self) -> bool:
        """Whether there is a request of any lane."""
        return bool(self._requests)

    @property
    def num_computed(self) -> int:
        """Tokens of all lanes that went through the model."""
        return sum(lane.counters.computed_tokens for lane in self.lanes)

    def list_requests(self) -> list[Request]:
        """The requests of all lanes, in order of their coming."""
        return list(self._requests.values())

    @property
    def live_cap(self) -> int:
        """Most sequences of all lanes that run at once. Lowering it stops admissions and never preempts.

        A request with more sequences than that runs alone.
        """
        return self._first.slots.live_cap

    @live_cap.setter
    def live_cap(self, cap: int) -> None:
        before = self.live_cap
        for lane in self.lanes:
            lane.slots.live_cap = cap
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
        """Limit steps to ``tokens`` while several tenants are served, if the order is by tenant, or several lanes."""
        self._step_budget.shared = tokens

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
        lane, arrival = self.lanes[requests[0].spec.lane], requests[0].spec.arrival
        try:
            lane.validation.check_call(
                requests, following, self.queue_wait.queue_pace(arrival) if lane is self._first else None
            )
        except AdmissionError as error:
            lane.counters.rejected[error.reason] += 1
            raise
        if self.config.whole_prompts:
            lane.shares.set_due_times(requests)
        if lane is self._first and not lane.queue.count_waiting():
            self.queue_wait.start_queue(arrival)
        for request in requests:
            if request.branch_selector is not None:
                request.branches = BranchedRequest(request, request.branch_selector, self.kv)
            self._requests[request.request_id] = request
            lane.queue.insert(request)
            self._deadlines.watch(request)
            if lane is self._first:
                self._step_budget.add_request(request.spec.tenant)
            lane.counters.requests += 1

    def check_size(self, request: Request) -> None:
        """Refuse what can never be served, whatever else there is: from any thread."""
        self._first.validation.check_size(request)

    def settle_request(self, request: Request) -> None:
        """Return what is reserved of its tenant's quota for a request that will not be queued."""
        self.lanes[request.spec.lane].validation.quota.settle_request(request)

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
        first = self._first
        budget = self._step_budget.limit_tokens(self._step, len(first.running))
        builder = BatchBuilder(min(budget, self.config.max_batched_tokens), self.config.whole_prompts)
        for request in self._deadlines.pop_expired(now):
            self._finish_request(request, FinishReason.TIMEOUT)
            builder.expired.append(request)
        admitted_before = self.counters.queue_count
        if self.config.force_preempt_every and self._step % self.config.force_preempt_every == 0:
            self._preemption.force_preemption(builder)
        self._schedule_lane(first, builder, self._list_running(first), now, admits=True)
        self.queue_wait.admit(self.counters.queue_count - admitted_before, now)
        self._speculation.extend_batch(builder)
        computed = recomputed = 0
        for lane in self.lanes[1:]:
            if lane.has_work:
                before = len(builder.chunks)
                self._schedule_lower_lane(lane, builder, now)
                tokens = builder.count_tokens(before)
                lane.counters.computed_tokens += tokens[0]
                lane.counters.recomputed_tokens += tokens[1]
                computed, recomputed = computed + tokens[0], recomputed + tokens[1]
        swaps, copies = self.swap.take_copies(), self.kv.take_copies()
        batch = builder.build(self._step, swaps, copies, ahead=self.config.overlap)
        first.counters.computed_tokens += builder.computed - computed
        first.counters.recomputed_tokens += builder.recomputed - recomputed
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

    def add_step_work(self, batch: Batch, work: StepWork, time: float) -> None:
        """Add a step that took ``time`` to the sums of the first lane of which it has a request."""
        # The requests of a lane stand before those of the next one.
        lane = batch.scheduled[0].request.spec.lane if batch.scheduled else Lane.ONLINE
        self.lanes[lane].counters.steps.add(work, time)

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
        sequences += [
            sequence
            for lane in self.lanes
            for sequence in lane.running
            if not torn.isdisjoint(sequence.block_table.block_ids)
        ]
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
        peak = projected_peak_tokens(self.running, self.config.max_model_len, self.kv.groups)
        return peak / (self.config.num_blocks * self.config.block_size)

    def check_integrity(self) -> None:
        """Raise ``AssertionError`` unless every block and every request is where it should be."""
        sequences = [sequence for request in self._requests.values() for sequence in request.sequences]
        self.kv.check_integrity(sequences)
        self.swap.check_integrity(self._requests.values(), self.config.host_blocks)
        running = [request for lane in self.lanes for request in lane.running]
        waiting = [request for lane in self.lanes for request in lane.queue.waiting]
        assert all(len(lane.running) <= self.config.max_num_seqs for lane in self.lanes)
        assert all(request.spec.lane is lane.lane for lane in self.lanes for request in lane.running)
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
            "running": len(self.running),
            "waiting": len(self.waiting),
            "batch": self._build_batch_stats(),
            **self.kv.build_stats(),
            "kv_projected_peak": self.projected_peak(),
            **self.counters.build_totals(ticks_per_second),
        }

    def _build_batch_stats(self) -> dict[str, int]:
        """The lane for batches by its names in ``paternoster_contract.stats.BatchLaneStats``."""
        lane, totals = self.lanes[Lane.BATCH], self.lanes[Lane.BATCH].counters.build_totals()
        return {
            "running": len(lane.running),
            "waiting": lane.queue.count_waiting(),
            "kv_blocks_used": self.pool.num_cold_used // self.kv.groups.count,
            **{name: totals[name] for name in BatchLaneStats.model_fields if name.endswith("_total")},
        }

    def _schedule_lane(
        self, lane: RequestLane, builder: BatchBuilder, running: Sequence[Request], now: float, *, admits: bool
    ) -> None:
        """Schedule ``running`` ones of the lane, and admit waiting ones beside them if it ``admits`` any."""
        if self.config.prefill_first:
            before = len(builder.chunks)
            prompts = [request for request in running if request.prefilling]
            self._schedule_requests(lane, builder, prompts, now, admits=admits)
            if len(builder.chunks) == before:
                self._schedule_requests(lane, builder, running, now, admits=False)
        elif self.config.pause_lower_classes:
            self._schedule_by_class(lane, builder, running, now, admits=admits)
        else:
            self._schedule_requests(lane, builder, running, now, admits=admits)

    def _schedule_lower_lane(self, lane: RequestLane, builder: BatchBuilder, now: float) -> None:
        """Fill what the step has left with requests of a lower lane; none is admitted while one above it waits."""
        if builder.lowest_class < math.inf:
            # The step is a class's alone.
            return
        running, given = self._list_running(lane), sum(builder.chunks.values())
        builder.begin_lane(self._step_budget.limit_lower_lane(given, builder.budget, len(running)))
        if builder.budget <= 0:
            return
        self.pool.cool_unused(now - self._cache_ticks)
        admits = not any(above.queue.count_waiting() for above in self.lanes[: lane.lane])
        self._schedule_lane(lane, builder, running, now, admits=admits)
        if not given:
            self._speculation.extend_batch(builder)
        builder.lowest_class = math.inf

    def _list_running(self, lane: RequestLane) -> list[Request]:
        """Sequences of the lane that may have tokens of the step; those without a slot keep their blocks and wait."""
        if lane is self._first:
            return lane.running[:]
        unfinished = (request for request in lane.running if request.num_expected > request.num_computed)
        return list(islice(unfinished, max(0, lane.slots.num_left)))

    def _schedule_requests(
        self, lane: RequestLane, builder: BatchBuilder, requests: Sequence[Request], now: float, *, admits: bool = True
    ) -> None:
        """Schedule ``requests``, which run, and admit waiting ones beside them."""
        admission = self._admissions[lane.lane]
        prompts = lane.shares.sort_prompts(self._schedule_decodes(builder, requests))
        reserved, cut_short = 0, find_cut_short(prompts, builder.budget)
        if cut_short is not None and admits and not builder.has_preempted(lane.lane):
            builder.backlog = sum(prompt.num_expected - prompt.num_computed for prompt in prompts) - builder.budget
            reserved = min(builder.budget, admission.find_passing_prompts(builder, cut_short))
        self._schedule_prompts(lane, builder, prompts, reserved)
        if admits:
            admission.admit_waiting(builder, now)
        if cut_short is not None and builder.budget:
            # A request that was to pass was not admitted, or another one was preempted.
            self._schedule_prompts(lane, builder, prompts)

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

    def _schedule_prompts(
        self, lane: RequestLane, builder: BatchBuilder, prompts: Sequence[Request], reserved: int = 0
    ) -> None:
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
                lane.shares.count_service(request, count - given, stop)

    def _make_room(self, request: Request, num_tokens: int, builder: BatchBuilder) -> bool:
        """Allocate blocks for a running request's first ``num_tokens`` tokens; False when it was preempted itself.

        A step that has admitted preempts no request of the lane for blocks: False where too few are free.
        """
        table = request.block_table
        if builder.admitted and table.shares_tail:
            return False
        while (table.shares_tail or num_tokens > table.num_writable) and not self.kv.grow_table(request, num_tokens):
            if builder.admitted:
                if self._preemption.displace(request.spec.lane, builder):
                    continue
                return False
            self._preemption.make_room(request, builder)
            if request.status is not RequestStatus.RUNNING:
                return False
        return True

    def _schedule_by_class(
        self, lane: RequestLane, builder: BatchBuilder, running: Sequence[Request], now: float, *, admits: bool
    ) -> None:
        """Schedule no request below the class of the most important prompt."""
        prompts = min((request.spec.priority for request in running if request.prefilling), default=math.inf)
        waiting = self._admissions[lane.lane].next_priority() if admits else math.inf
        builder.lowest_class, before = min(prompts, waiting), set(builder.chunks)
        # A prompt of a lower class that was admitted before must not take the budget from tokens of those above it.
        first = [request for request in _sort_by_class(running) if builder.serves_class(request)]
        self._schedule_requests(lane, builder, first, now, admits=admits)
        if builder.chunks.keys() - before <= {request for request in first if not request.prefilling}:
            # The next waiting request did not fit.
            builder.lowest_class = prompts
            rest = [each for each in _sort_by_class(self._list_running(lane)) if each not in builder.chunks]
            self._schedule_requests(lane, builder, list(filter(builder.serves_class, rest)), now, admits=False)

    def _finish_request(self, request: Request, reason: FinishReason) -> None:
        lane = self.lanes[request.spec.lane]
        if request.status is RequestStatus.RUNNING:
            for sequence in request.sequences:
                lane.running.remove(sequence)
                self.kv.release(sequence)
            lane.slots.promised.discard(request)
            lane.queue.end_running(request)
        else:
            lane.queue.remove(request)
            self.swap.discard(request)
        lane.validation.quota.settle_request(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        del self._requests[request.request_id]
        if lane is self._first:
            self._step_budget.remove_request(request.spec.tenant, self._step)
        lane.counters.finished[reason] += 1


def _sort_by_class(requests: Sequence[Request]) -> list[Request]:
    return sorted(requests, key=lambda request: request.spec.priority)
