"""Which waiting requests are admitted in a step, and which blocks they begin with."""

import math
from itertools import islice

from paternoster_contract.request_phases import WaitReason
from paternoster_engine.core.admission.lanes import RequestLane
from paternoster_engine.core.admission.preemption import AdmissionPreemption, Preemption, Swap
from paternoster_engine.core.admission.reservation import make_reservation
from paternoster_engine.core.batch import BatchBuilder
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.kv.forking import Fork
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import Request, RequestStatus

MAX_PREFIX_WAITS = 32
"""Requests a step passes over because others compute their next block, before it looks no further."""
MAX_PASSING = 32
"""Requests of the queue that a step compares with those that run."""


class SlotAdmission:
    """Takes requests of one lane out of its queue into the list of those that run, with the blocks they need."""

    def __init__(
        self,
        config: SchedulerConfig,
        lane: RequestLane,
        kv: KVCache,
        swap: Swap,
        preemption: Preemption,
    ) -> None:
        self._lane = lane.lane
        self._await_prefix = config.await_prefix
        self._prefix_cache = config.prefix_cache
        self._queue = lane.queue
        self._running = lane.running
        self._slots = lane.slots
        self._kv = kv
        self._swap = swap
        self._counters = lane.counters
        self._preemption = preemption
        self._shares_slots = config.order == "fair-share"
        self._shares = lane.shares
        self._admission_preemption = AdmissionPreemption(config, lane.queue, make_reservation(config), kv, preemption)
        self._blocked = self._was_blocked = WaitReason.STEP
        """Reasons for which this step, and the one before it, did not admit all that waited."""
        self.num_deferred = 0
        """Requests that the last step passed over for their tenant's limit, or for a prefix that another computes."""

    def next_priority(self) -> float:
        """The ``priority`` of the request that would be admitted first; infinite when none waits."""
        return next((request.spec.priority for request in self._queue.iterate_candidates()), math.inf)

    def admit_waiting(self, builder: BatchBuilder, now: float) -> None:
        """Admit in the queue's order until one does not fit.

        Where running prompts take up the budget, it ends with the last one that passes them. A step that preempted for
        want of blocks admits no request; one that preempts for priority or a tenant's share, none after that.
        """
        self.num_deferred = 0
        self._was_blocked, self._blocked = self._blocked, WaitReason.STEP
        if builder.has_preempted(self._lane):
            self._blocked = WaitReason.KV_BLOCKS
            return
        if self._shares_slots and self._slots.num_free <= 0 and self._running:
            self._blocked = WaitReason.SLOTS
            self._admit_for_share(builder, now)
            return
        waits = 0
        num_before = len(self._running)
        forked = kept_back = False
        full_tenants: set[str] = set()
        for request in self._queue.iterate_candidates():
            if not builder.has_room(request) or builder.passing == set():
                self._blocked = WaitReason.TOKEN_BUDGET
                return
            if not builder.serves_class(request):
                continue
            # A request that waits for unreserved slots is not overtaken by others that need these.
            kept_back = kept_back or self._slots.only_reserved_left(request)
            if kept_back and request.spec.priority >= 0:
                self._blocked = WaitReason.SLOTS
                continue
            # Nor is one overtaken by a request of its own tenant.
            if request.spec.tenant in full_tenants or self._slots.tenant_is_full(request):
                full_tenants.add(request.spec.tenant)
                self._blocked = WaitReason.TENANT_SLOTS
                self.num_deferred += 1
                continue
            missing = self._slots.count_missing(request)
            full = missing > 0
            if full and not self._queue.preempts:
                self._blocked = WaitReason.SLOTS
                return
            prefix = self._kv.find_prefix(request)
            fork = Fork.find(request, self._kv.num_tokens(prefix), self._kv)
            if self._await_prefix and self._waits_for_prefix(request, prefix, fork):
                self._counters.prefix_waits += 1
                self._blocked = WaitReason.PREFIX
                self.num_deferred += 1
                waits += 1
                if waits == MAX_PREFIX_WAITS:
                    return
                continue
            if fork is not None and not fork.is_ready:
                fork = None
            shared = prefix if fork is None else self._kv.find_shareable_rows(fork.donor, fork.num_tokens)
            if not full and self._admission_preemption.fits(request, shared, self._running):
                self._admit(request, shared, builder, now, fork)
                forked |= fork is not None
                continue
            self._blocked = WaitReason.SLOTS if full else WaitReason.KV_BLOCKS
            # A preemption could free blocks that a copy of this step reads.
            if not forked:
                self._preempt_for(request, prefix, missing, num_before, builder, now)
            return

    def _admit_for_share(self, builder: BatchBuilder, now: float) -> None:
        """All slots are taken: admit the next request of a tenant that has fewer than another."""
        for request in self._admission_preemption.find_underserved(
            islice(self._queue.first_of_each_tenant(), MAX_PASSING), self._running
        ):
            if not builder.serves_class(request) or self._slots.only_reserved_left(request):
                continue
            if self._slots.tenant_is_full(request):
                continue
            prefix = self._kv.find_prefix(request)
            missing = self._slots.count_missing(request)
            if self._preempt_for(request, prefix, missing, len(self._running), builder, now):
                return

    def _preempt_for(
        self, request: Request, prefix: list[int], missing: int, num_before: int, builder: BatchBuilder, now: float
    ) -> bool:
        """Admit a request in the place of some of the first ``num_before`` that run; False without victims."""
        running = self._running
        victims = self._admission_preemption.find_victims(request, prefix, running, missing, running[:num_before])
        for victim in victims:
            self._preemption.preempt(victim, builder, for_share=self._shares_slots)
        if victims:
            self._counters.priority_preemptions += len(victims)
            self._admit(request, prefix, builder, now)
        return bool(victims)

    def find_passing_prompts(self, builder: BatchBuilder, cut_short: Request) -> int:
        """The waiting requests that are served before ``cut_short``, the first running prompt beyond the budget.

        Returns the tokens that they need. Requests ahead of them in the queue are admitted with them, so that none is
        overtaken there.
        """
        tokens, slots = 0, self._slots.num_free
        builder.passing = set()
        for request in islice(self._queue.iterate_candidates(), MAX_PASSING):
            slots -= request.slots
            if tokens >= builder.budget or (slots < 0 and not self._queue.preempts):
                break
            count = self._count_uncached(request)
            request.due = self._shares.due_time(count, ahead=tokens)
            if count and builder.serves_class(request) and self._shares.is_served_before(request, cut_short):
                builder.passing.add(request)
                tokens += count
        return tokens

    def _count_uncached(self, request: Request) -> int:
        """Tokens that the request would have to compute; 0 if it would wait for others to compute them."""
        prefix = self._kv.find_prefix(request)
        cached = max(self._kv.num_tokens(prefix), request.block_table.num_swapped)
        fork = Fork.find(request, cached, self._kv)
        if self._await_prefix and self._waits_for_prefix(request, prefix, fork):
            return 0
        return request.num_uncomputed - (cached if fork is None or not fork.is_ready else fork.num_tokens)

    def _waits_for_prefix(self, request: Request, prefix: list[int], fork: Fork | None) -> bool:
        """Whether a running request is computing a block that the request could share."""
        if request.block_table.host_block_ids:
            return False
        return self._kv.is_next_row_claimed(request, prefix) or (fork is not None and not fork.is_ready)

    def _admit(
        self, request: Request, prefix: list[int], builder: BatchBuilder, now: float, fork: Fork | None = None
    ) -> None:
        """``prefix``: blocks to share; with ``fork`` those of its donor."""
        while self._kv.count_new_blocks(request, prefix) > self._kv.count_available(request):
            if not self._preemption.displace(self._lane, builder):
                break
        self._queue.remove(request)
        if fork is None:
            cached = self._kv.num_tokens(prefix)
            self._kv.admit(request, prefix, max(cached, request.block_table.num_swapped))
        else:
            cached = fork.num_tokens
            self._kv.admit_fork(request, fork.donor, cached)
        self._running.append(request)
        self._queue.begin_running(request)
        if request.slots > 1:
            self._slots.promised.add(request)
        request.status = RequestStatus.RUNNING
        request.num_cached = request.num_computed = cached
        if request.block_table.host_block_ids:
            request.num_computed = self._swap.restore(request, cached)
        self._count_admission(request, now)
        if builder.passing is None or request not in builder.passing:
            request.due = self._shares.due_time(request.num_uncomputed, builder.backlog)
        self._queue.count_computed(request, request.num_computed)
        builder.admitted = True
        given = builder.add(request)
        if given:
            self._shares.count_service(request, given, request.num_computed + given)

    def _count_admission(self, request: Request, now: float) -> None:
        counters = self._counters
        if self._prefix_cache:
            counters.prefix_queries += request.num_tokens
            counters.prefix_hits += request.num_cached
        if request.first_scheduled is None:
            request.first_scheduled, request.waited_for = now, self._was_blocked
            request.num_found = request.num_cached
            counters.prompt_tokens += request.num_prompt
            counters.cached_prompt_tokens += request.num_cached
            counters.uncached_prompt_tokens += request.num_prompt - request.num_cached
            counters.queue_seconds += now - request.spec.arrival
            counters.queue_count += 1
