"""Iteration-level scheduling (Orca) over a paged KV cache: one token budget a step, no prefill or decode phases.

Every request has tokens that are known and tokens that are computed; a step hands out the budget so that the second
number catches up with the first. Those that run come first, then those that wait. When requests are admitted, in which
order they wait, what memory an admission must leave and who loses its blocks is chosen by name in the configuration.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paternoster_engine.core.admission.admission import Admission
from paternoster_engine.core.admission.preemption import Preemption, Swap
from paternoster_engine.core.admission.prompt_shares import PromptShares, first_cut_short
from paternoster_engine.core.admission.reservation import Slots, projected_peak_tokens
from paternoster_engine.core.admission.step_budget import StepBudget
from paternoster_engine.core.admission.validation import RequestValidation
from paternoster_engine.core.batch import Batch, BatchBuilder, StepOutput, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.kv.block_pool import BlockPool
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.model_drafts import Drafter
from paternoster_engine.core.request import FinishReason, Request, RequestStatus, SequenceGroup
from paternoster_engine.core.speculation import Speculation
from paternoster_engine.core.stats import Counters
from paternoster_engine.core.step_update import StepUpdate
from paternoster_engine.core.waiting.batching import make_batching
from paternoster_engine.core.waiting.queue_wait import QueueWait
from paternoster_engine.core.waiting.waiting_queue import Deadlines, make_queue


class Scheduler:
    """Decides who runs; knows nothing of models, tensors or time. Not thread-safe."""

    def __init__(
        self,
        config: SchedulerConfig,
        live_cap: int | None = None,
        *,
        token_budget: int | None = None,
        pool: BlockPool | None = None,
        drafter: Drafter | None = None,
        ticks_per_second: int = 1,
    ) -> None:
        """``live_cap`` and ``token_budget``: at first; None for the capacity.

        ``pool``: of ``config.num_blocks`` blocks, for who needs another than the one that is made here. ``drafter``:
        proposes tokens with ``speculative: draft``. ``ticks_per_second``: unit of the times that callers pass.
        """
        self.config = config
        self.drafter = drafter
        self.pool = BlockPool(config.num_blocks) if pool is None else pool
        self.counters = Counters()
        self.kv = KVCache(self.pool, KVGroups(config), prefix_cache=config.prefix_cache)
        self.swap = Swap(config, self.counters)
        self._batching = make_batching(config)
        self._running: list[Request] = []
        self._queue = make_queue(config, self._running)
        self._shares = PromptShares(self._queue)
        self._validation = RequestValidation(config, self._queue)
        self._deadlines = Deadlines()
        self.queue_wait = QueueWait(ticks_per_second)
        self._requests: dict[str, Request] = {}
        self._slots = Slots(config, self._running, live_cap)
        self._preemption = Preemption(
            config, self._queue, self._running, self._slots, self.kv, self.swap, self._deadlines, self.counters
        )
        self._admission = Admission(
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
            self._validation.quota,
            self._speculation,
            self.counters,
            self._finish,
        )
        budget = config.max_batched_tokens if token_budget is None else self._checked_budget(token_budget)
        self._step_budget = StepBudget(budget)
        self._step = 0

    @property
    def running(self) -> Sequence[Request]:
        """Sequences that hold blocks, in order of admission; those of a group stand next to each other."""
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

        A group of more than that runs alone.
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
        before, self._step_budget.live = self._step_budget.live, self._checked_budget(tokens)
        self.counters.token_budget_changes += before != tokens

    def bound_shared_steps(self, tokens: int | None) -> None:
        """Let steps hold at most ``tokens`` while several tenants are served, where the order tells them apart."""
        self._step_budget.shared = tokens if self.config.order == "fair-share" else None

    def _checked_budget(self, tokens: int) -> int:
        if not 1 <= tokens <= self.config.max_batched_tokens:
            raise ValueError(f"token_budget is {tokens}: must be 1 to {self.config.max_batched_tokens}, the capacity")
        return tokens

    def add(self, *requests: Request) -> None:
        """Queue the requests of one call.

        Raises :class:`AdmissionError`, with nothing changed, when one of them cannot or may not wait.
        """
        for request in requests:
            if request.request_id in self._requests:
                raise ValueError(f"request_id {request.request_id!r} is already in use")
        try:
            self._validation.check(requests, self.queue_wait.pace(requests[0].arrival))
        except AdmissionError as error:
            self.counters.rejected[error.reason] += 1
            raise
        if self.config.whole_prompts:
            self._shares.place_call(requests)
        if not self.waiting:
            self.queue_wait.begin(requests[0].arrival)
        for request in requests:
            if request.branching is not None:
                request.group = SequenceGroup(request, request.branching)
            self._requests[request.request_id] = request
            self._queue.insert(request)
            self._deadlines.watch(request)
            self._step_budget.begin(request.tenant)
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
        self.pool.residency.now = now
        # Who runs already must advance, whatever the budget was lowered to.
        budget = self._step_budget.tokens(self._step, len(self._running))
        builder = BatchBuilder(min(budget, self.config.max_batched_tokens), self.config.whole_prompts)
        for request in self._deadlines.expired(now):
            self._finish(request, FinishReason.TIMEOUT)
            builder.expired.append(request)
        admitted_before = self.counters.queue_count
        admits = self._batching.admits(len(self._running), self._queue, now)
        if self.config.force_preempt_every and self._step % self.config.force_preempt_every == 0 and self._running:
            self._preemption.force(builder)
        if self.config.prefill_first:
            self._serve(builder, [request for request in self._running if request.prefilling], admits, now)
            if not builder.chunks:
                self._serve(builder, list(self._running), admits=False, now=now)
        elif self.config.pause_lower_classes:
            self._upper_prompts_first(builder, admits, now)
        else:
            self._serve(builder, list(self._running), admits, now)
        self.queue_wait.admit(self.counters.queue_count - admitted_before, now)
        self._speculation.extend(builder)
        swaps, copies = self.swap.take_copies(), self.kv.take_copies()
        batch = builder.build(self._step, swaps, copies, ahead=self.config.overlap)
        self.counters.computed_tokens += builder.computed
        self.counters.recomputed_tokens += builder.recomputed
        return batch

    def update(self, batch: Batch, result: StepResult, now: float) -> list[StepOutput]:
        """Take in what came of the step; requests ended since are skipped."""
        return self._step_update.apply(batch, result, now)

    def foreseeable(self, batch: Batch) -> bool:
        """Whether all that is unknown of the step after ``batch`` is its tokens.

        Where beams go on is not known, nor are proposals that begin with the tokens that ``batch`` samples.
        """
        load = len(batch.scheduled)
        return all(
            item.request.group is None and not item.proposed and not self._speculation.awaits(item.request, load)
            for item in batch.scheduled
        )

    def without_finished(self, batch: Batch) -> Batch:
        """``batch``, planned before the last step ended, without the rows of requests that ended with it."""
        kept = tuple(item for item in batch.scheduled if not item.request.leader.finished)
        return batch if len(kept) == len(batch.scheduled) else replace(batch, scheduled=kept)

    def fail(self, batch: Batch, planned: Batch | None = None) -> list[Request]:
        """The step could not be computed: end its requests with an error and go on with the others.

        ``planned``: the step after it, if there is one already.
        """
        # Whether the step's copies were made is not known either.
        torn = {block for _, block in (*batch.swap_in, *batch.copies)}
        sequences = [item.request for item in batch.scheduled]
        if planned is not None:
            # It may bring back what this one was to save, or go on from what this one was to compute.
            torn.update(block for _, block in (*planned.swap_in, *planned.copies))
            torn.update(block for sequence in sequences for block in self.kv.unkept_blocks(sequence))
        sequences += [sequence for sequence in self._running if not torn.isdisjoint(sequence.block_ids)]
        failed = [request for request in dict.fromkeys(s.leader for s in sequences) if not request.finished]
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
            request.check()

    def stats(self, *, ticks_per_second: int = 1) -> dict[str, Any]:
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
            **self.kv.stats(),
            "kv_projected_peak": self.projected_peak(),
            **self.counters.totals(ticks_per_second),
        }

    def _serve(self, builder: BatchBuilder, requests: Sequence[Request], admits: bool, now: float) -> None:
        """Let ``requests``, which run, catch up with their tokens, and admit those that wait beside them."""
        prompts = self._shares.in_order(self._continue(builder, requests))
        kept, cut_short = 0, first_cut_short(prompts, builder.budget)
        if cut_short is not None and admits and not builder.preempted:
            builder.backlog = sum(prompt.num_expected - prompt.num_computed for prompt in prompts) - builder.budget
            kept = min(builder.budget, self._admission.find_passing(builder, cut_short))
        self._continue_prompts(builder, prompts, kept)
        count = len(self._running)
        if admits:
            self._admission.admit_waiting(builder, now, whole_batch=self._batching.whole_batches)
        if cut_short is not None and builder.budget:
            # A request that was to pass was not admitted, or another one was preempted. A step that admits does not
            # preempt for want of blocks.
            self._continue_prompts(builder, prompts, preempts=not builder.preempted and len(self._running) == count)

    def _continue(self, builder: BatchBuilder, requests: Sequence[Request]) -> list[Request]:
        """Let ``requests``, which run, go on by one token each; returns those that have more to catch up with."""
        prompts: list[Request] = []
        max_model_len = self.config.max_model_len
        running, chunks = RequestStatus.RUNNING, builder.chunks
        for request in requests:
            if request.status is not running:
                continue
            computed = request.num_computed
            pending = request.num_pending
            count = len(request.prompt) + len(request.output) + pending - computed
            if count > 1:
                prompts.append(request)
                continue
            if count == 0 or builder.budget == 0 or (pending and request.ends_with_pending(max_model_len)):
                # A sequence that waits for the others of its group, or the end of a request is under way.
                continue
            # Most steps stay within the last block: nothing is asked of the pool then.
            needed = computed + 1
            if (request.shares_tail or needed > request.room) and not self._make_room(request, needed, builder):
                continue
            chunks[request] = 1
            builder.budget -= 1
        return prompts

    def _continue_prompts(
        self, builder: BatchBuilder, prompts: Sequence[Request], kept: int = 0, *, preempts: bool = True
    ) -> None:
        """Give ``prompts`` what is left of the budget, but for ``kept`` tokens, the first as much as it needs."""
        for request in prompts:
            budget = builder.budget - kept
            if budget <= 0:
                return
            if request.status is not RequestStatus.RUNNING:
                continue
            given = builder.chunks.get(request, 0)
            stop = min(request.num_expected, request.num_computed + given + budget)
            if preempts:
                has_room = self._make_room(request, stop, builder)
            else:
                has_room = not request.shares_tail and (stop <= request.room or self.kv.grow(request, stop))
            if has_room:
                count = stop - request.num_computed
                builder.chunks[request] = count
                builder.budget -= count - given
                self._shares.serve(request, count - given, stop)

    def _make_room(self, request: Request, num_tokens: int, builder: BatchBuilder) -> bool:
        """Blocks for a running request's first ``num_tokens`` tokens; False when it has to leave for want of them."""
        while (request.shares_tail or num_tokens > request.room) and not self.kv.grow(request, num_tokens):
            self._preemption.make_room(request, builder)
            if request.status is not RequestStatus.RUNNING:
                return False
        return True

    def _upper_prompts_first(self, builder: BatchBuilder, admits: bool, now: float) -> None:
        """Hand the budget out, but to nobody below the class of the most important prompt."""
        prompts = min((request.priority for request in self._running if request.prefilling), default=math.inf)
        builder.lowest_class = min(prompts, self._admission.next_class()) if admits else prompts
        # A prompt of a lower class that was admitted before must not take the budget from tokens of those above it.
        first = [request for request in self._by_class() if builder.allows(request)]
        self._serve(builder, first, admits, now)
        if builder.chunks.keys() <= {request for request in first if not request.prefilling}:
            # Whoever was next did not fit.
            builder.lowest_class = prompts
            rest = [r for r in self._by_class() if builder.allows(r) and r not in builder.chunks]
            self._serve(builder, rest, admits=False, now=now)

    def _by_class(self) -> list[Request]:
        return sorted(self._running, key=lambda request: request.priority)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        if request.status is RequestStatus.RUNNING:
            for sequence in request.sequences:
                self._running.remove(sequence)
                self.kv.release(sequence)
            if request.group is not None:
                self._slots.promised.discard(request.group)
        else:
            self._queue.remove(request)
            self.swap.drop(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        del self._requests[request.request_id]
        self._step_budget.end(request.tenant, self._step)
        self.counters.finished[reason] += 1
