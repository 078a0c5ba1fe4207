"""Iteration-level scheduling (Orca) over a paged KV cache: one token budget a step, no prefill or decode phases.

Every request has tokens that are known and tokens that are computed; a step hands out the budget so that the second
number catches up with the first. Those that run come first, then those that wait. When requests may board, in which
order they wait, what memory an admission must leave and who loses its blocks is up to :mod:`.policies`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paternoster_engine.core.batch import Batch
from paternoster_engine.core.beam_group import BeamGroup
from paternoster_engine.core.block_pool import BlockPool
from paternoster_engine.core.boarding import Boarding
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.counters import Counters
from paternoster_engine.core.deadlines import Deadlines
from paternoster_engine.core.errors import AdmissionError
from paternoster_engine.core.gate import Gate
from paternoster_engine.core.integrity import check_requests
from paternoster_engine.core.kv_cache import KVCache
from paternoster_engine.core.places import Places
from paternoster_engine.core.policies.admission import projected_peak_tokens
from paternoster_engine.core.policies.queues import make_queue
from paternoster_engine.core.policies.victim import VICTIMS
from paternoster_engine.core.preemption_cost import PreemptionCost
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.step_plan import StepPlan
from paternoster_engine.core.stopping import finish_reason, pending_token_is_last
from paternoster_engine.core.swap import Swap


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step gave to a request: a token, its end, or both; no token when it failed or was a beam search."""

    request: Request
    token: int | None
    finish_reason: FinishReason | None


class Scheduler:
    """Decides who runs; knows nothing of models, tensors or time. Not thread-safe."""

    def __init__(
        self,
        config: SchedulerConfig,
        live_cap: int | None = None,
        *,
        token_budget: int | None = None,
        pool: BlockPool | None = None,
    ) -> None:
        """``live_cap`` and ``token_budget``: at first; None for the capacity.

        ``pool``: of ``config.num_blocks`` blocks, for who needs another than the one that is made here.
        """
        self.config = config
        self.pool = BlockPool(config.num_blocks) if pool is None else pool
        self.counters = Counters()
        self.kv = KVCache(self.pool, config.block_size, prefix_cache=config.prefix_cache)
        self.preemption_cost = PreemptionCost()
        self.swap = Swap(config, self.preemption_cost, self.counters)
        self._victim = VICTIMS[config.victim]()
        self._queue = make_queue(config)
        self._gate = Gate(config)
        self._deadlines = Deadlines()
        self._meters_output = config.uses_tenants
        self._requests: dict[str, Request] = {}
        self._running: list[Request] = []
        self._places = Places(config, self._running, live_cap)
        self._boarding = Boarding(
            config, self._queue, self._running, self._places, self.kv, self.swap, self.counters, self._preempt
        )
        self._token_budget = config.max_batched_tokens if token_budget is None else self._checked_budget(token_budget)
        self._step = 0

    @property
    def running(self) -> Sequence[Request]:
        """Sequences that hold blocks, in order of admission; the beams of a search stand next to each other."""
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
        """How many sequences may run at once. Lowering it stops admissions and never preempts.

        A search with more beams than that runs alone.
        """
        return self._places.live_cap

    @live_cap.setter
    def live_cap(self, cap: int) -> None:
        before, self._places.live_cap = self._places.live_cap, cap
        self.counters.live_cap_changes += before != cap

    @property
    def token_budget(self) -> int:
        """Most tokens of the next step, but never less than one for each sequence that runs."""
        return self._token_budget

    @token_budget.setter
    def token_budget(self, tokens: int) -> None:
        before, self._token_budget = self._token_budget, self._checked_budget(tokens)
        self.counters.token_budget_changes += before != tokens

    def add(self, *requests: Request) -> None:
        """Queue the requests of one call.

        Raises :class:`AdmissionError`, with nothing changed, when one of them cannot or may not wait.
        """
        for request in requests:
            if request.request_id in self._requests:
                raise ValueError(f"request_id {request.request_id!r} is already in use")
        try:
            self._gate.admit(requests, self.waiting)
        except AdmissionError as error:
            self.counters.rejected[error.reason] += 1
            raise
        for request in requests:
            if request.params.beam is not None:
                request.group = BeamGroup(request)
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
        # Who runs already must advance, whatever the budget was lowered to.
        plan = StepPlan(min(max(self._token_budget, len(self._running)), self.config.max_batched_tokens))
        for request in self._deadlines.expired(now):
            self._finish(request, FinishReason.TIMEOUT)
            plan.expired.append(request)
        boards = self._boarding.opens(now)
        if self.config.force_preempt_every and self._step % self.config.force_preempt_every == 0 and self._running:
            self._preempt(self._victim.choose(self._running), plan)
        if self.config.prefill_first:
            self._continue(plan, [request for request in self._running if request.prefilling])
            if boards:
                self._boarding.admit_waiting(plan, now)
            if not plan.chunks:
                self._continue(plan, list(self._running))
        elif self.config.pause_lower_classes:
            self._upper_prompts_first(plan, boards, now)
        else:
            self._continue(plan, list(self._running))
            if boards:
                self._boarding.admit_waiting(plan, now)
        swaps, copies = self.swap.take_copies(), self.kv.take_copies()
        return plan.seal(self._step, swaps, copies, self.counters, ahead=self.config.overlap)

    def update(self, batch: Batch, sampled: Sequence[int | None], now: float) -> list[StepOutput]:
        """Take the step's tokens in, one entry of ``sampled`` a scheduled item; requests ended since are skipped."""
        outputs = []
        groups: dict[BeamGroup, None] = {}
        for item, token in zip(batch.scheduled, sampled, strict=True):
            request = item.request
            if request.leader.finished:
                continue
            # The plan of the next step may have taken its blocks meanwhile.
            if request.status is RequestStatus.RUNNING:
                self.kv.keep(request, item.stop)
            if not item.samples:
                continue
            if request.num_pending:
                request.num_pending -= 1
            if request.group is not None:
                groups[request.group] = None
                continue
            assert token is not None, f"request {request.request_id} was to be sampled and was not"
            request.output.append(token)
            request.first_token = now if request.first_token is None else request.first_token
            request.last_token = now
            self.counters.generation_tokens += 1
            if self._meters_output or request.limits is not None:
                self._meter_output(request, now)
            reason = finish_reason(request, token, self.config.max_model_len)
            if reason is not None:
                self._finish(request, reason)
            outputs.append(StepOutput(request, token, reason))
        return outputs + [output for group in groups for output in self._advance(group, now)]

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
            torn.update(block for sequence in sequences for block in sequence.block_ids[sequence.num_kept_blocks :])
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
        peak = projected_peak_tokens(self._running, self.config.max_model_len)
        return peak / (self.config.num_blocks * self.config.block_size)

    def check_integrity(self) -> None:
        """Raise ``AssertionError`` unless every block and every request is where it should be."""
        self.pool.check_integrity(s.block_ids for request in self._requests.values() for s in request.sequences)
        self.swap.check_integrity(self._requests.values(), self.config.host_blocks)
        check_requests(self.config, self._requests.values(), self._running, self.waiting)

    def _checked_budget(self, tokens: int) -> int:
        if not 1 <= tokens <= self.config.max_batched_tokens:
            raise ValueError(f"token_budget is {tokens}: must be 1 to {self.config.max_batched_tokens}, the capacity")
        return tokens

    def _continue(self, plan: StepPlan, requests: Sequence[Request]) -> None:
        """Let ``requests``, which run, catch up with their tokens; whoever must makes room."""
        block_size, running, chunks = self.config.block_size, RequestStatus.RUNNING, plan.chunks
        for request in requests:
            budget = plan.budget
            if budget == 0 or request.status is not running:
                continue
            computed = request.num_computed
            pending = request.num_pending
            count = len(request.prompt) + len(request.output) + pending - computed
            if count == 0 or (pending and pending_token_is_last(request, self.config.max_model_len)):
                # A beam that waits for the others, or the end of a request is under way.
                continue
            if count > budget:
                count = budget
            needed = computed + count
            # Most steps stay within the last block: nothing is asked of the pool then.
            while (request.shares_tail or needed > len(request.block_ids) * block_size) and not self.kv.grow(
                request, needed
            ):
                self._preempt(self._victim.choose(self._no_more_important(request)), plan)
                if request.status is not running:
                    break
            else:
                chunks[request] = count
                plan.budget -= count

    def _upper_prompts_first(self, plan: StepPlan, boards: bool, now: float) -> None:
        """Hand the budget out, but to nobody below the class of the most important prompt."""
        prompts = min((request.priority for request in self._running if request.prefilling), default=math.inf)
        plan.lowest_class = min(prompts, self._boarding.next_class()) if boards else prompts
        # A prompt of a lower class that boarded before must not take the budget from tokens of those above it.
        first = [request for request in self._by_class() if plan.lets(request)]
        self._continue(plan, first)
        if boards:
            self._boarding.admit_waiting(plan, now)
        if plan.chunks.keys() <= {request for request in first if not request.prefilling}:
            # Whoever was next to board did not fit.
            plan.lowest_class = prompts
            self._continue(plan, [r for r in self._by_class() if plan.lets(r) and r not in plan.chunks])

    def _by_class(self) -> list[Request]:
        return sorted(self._running, key=lambda request: request.priority)

    def _no_more_important(self, request: Request) -> Sequence[Request]:
        """Running requests that may be preempted for ``request``: those below its class, else its equals and itself."""
        if not self.config.uses_priority:
            return self._running
        below = [other for other in self._running if other.priority > request.priority]
        return below or [other for other in self._running if other.priority == request.priority]

    def _preempt(self, request: Request, plan: StepPlan) -> None:
        """Take all blocks of a running request, a beam's with those of the whole search, and put it into the queue."""
        request = request.leader
        for sequence in request.sequences:
            plan.take_back(sequence)
            self._running.remove(sequence)
            if request.group is None:
                # Copies of what beams share would be many: a search is computed again.
                self.swap.save(request)
            self.kv.release(sequence)
            sequence.num_computed = sequence.num_cached = 0
            sequence.status = RequestStatus.PREEMPTED
        if request.group is not None:
            request.group.fold()
            self._places.promised.discard(request.group)
        plan.preempted.append(request)
        self.counters.preemptions += 1
        self.counters.requests_preempted += request.num_preemptions == 0
        request.num_preemptions += 1
        self._deadlines.watch(request)
        self._queue.insert(request)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        if request.status is RequestStatus.RUNNING:
            for sequence in request.sequences:
                self._running.remove(sequence)
                self.kv.release(sequence)
            if request.group is not None:
                self._places.promised.discard(request.group)
        else:
            self._queue.remove(request)
            self.swap.drop(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        del self._requests[request.request_id]
        self.counters.finished[reason] += 1

    def _advance(self, group: BeamGroup, now: float) -> Iterator[StepOutput]:
        """Some beams of a search were computed: when all are, it goes on; its end is an output."""
        request, folded = group.leader, group.folded
        count = group.advance(self.kv)
        if folded and not group.folded:
            place = self._running.index(request) + 1
            self._running[place:place] = group.sequences[1:]
            self._places.promised.discard(group)
        if count == 0:
            return
        request.first_token = now if request.first_token is None else request.first_token
        request.last_token = now
        self.counters.generation_tokens += count
        if self._meters_output or request.limits is not None:
            for _ in range(count):
                self._meter_output(request, now)
        if group.search.done:
            best = group.hypotheses[0]
            self._finish(request, best.finish_reason)
            request.output = list(best.tokens)
            yield StepOutput(request, None, best.finish_reason)

    def _meter_output(self, request: Request, now: float) -> None:
        self._queue.sampled(request)
        self._gate.quota.charge(request, 1, now)
