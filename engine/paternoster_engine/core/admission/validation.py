"""Which requests may join the queue: those that can ever be served, and that a tenant has quota for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paternoster_contract.queueing.queue_wait import QueuePace
from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.core.errors import (
    NeverFits,
    PromptTooLong,
    QueueFull,
    QueueTooSlow,
    TenantQueueFull,
    TenantRateExceeded,
    TooManySequences,
)
from paternoster_engine.core.kv.kv_groups import KVGroups
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.waiting.waiting_queue import WaitingQueue


class RequestValidation:
    """Refuses what can never be served and what there is no room for now."""

    def __init__(self, config: SchedulerConfig, queue: WaitingQueue) -> None:
        """``queue``: the scheduler's own."""
        self._config = config
        self._queue = queue
        self._groups = KVGroups(config)
        self.quota = TenantQuota(config)

    def check_call(self, requests: Sequence[Request], pace: QueuePace | None = None) -> None:
        """All of one call or none of them, none charged then. ``pace`` bounds what they may wait.

        Raises :class:`AdmissionError`, and ``ValueError`` for a request that no caller should make.
        """
        for ahead, request in enumerate(requests):
            self.check_size(request)
            if request.status is not RequestStatus.PREEMPTED:
                self._check_room(request, ahead)
        # Requests that begin as preempted ones were admitted, and their prompts charged, by the engine before this one.
        requests = [request for request in requests if request.status is not RequestStatus.PREEMPTED]
        if pace is not None and requests and self._queue.count_waiting():
            # By the first of a call: a large one that meets a short queue would be refused for ever.
            self._check_wait(requests[0], pace)
        for request in requests:
            self.quota.charge_tokens(request, request.num_prompt, request.spec.arrival)

    def check_size(self, request: Request) -> None:
        """Refuse what can never be served, whatever else there is: from any thread."""
        config = self._config
        if request.num_prompt == 0 or request.params.max_tokens < 0:
            raise ValueError("a request needs at least one prompt token, and no negative number of output tokens")
        if request.params.max_tokens > 0 and config.whole_prompts:
            raise ValueError("where prompts are computed in one step each there is nothing after them")
        if request.max_total_tokens > config.max_model_len:
            raise PromptTooLong(request.num_prompt, request.params.max_tokens, config.max_model_len)
        blocks = self._groups.count_required_blocks(request)
        if blocks > config.num_blocks:
            raise NeverFits(blocks, config.num_blocks, config.block_size)
        if request.width > config.max_num_seqs:
            raise TooManySequences(request.width, config.max_num_seqs)

    def _check_room(self, request: Request, ahead: int) -> None:
        """``ahead``: requests of the same call before this one."""
        total, places = self._queue.count_waiting() + ahead, self._config.max_queued_requests
        if total >= places and not self._has_tenant_queue_share(request, ahead, places):
            raise QueueFull(total)
        self.quota.check_request(request, self._queue.count_waiting(request.spec.tenant) + ahead)

    def _check_wait(self, request: Request, pace: QueuePace) -> None:
        waiting = self._queue.count_waiting()
        seconds = (waiting + 1) * pace.seconds_between
        places = int(pace.most_seconds / pace.seconds_between) if pace.seconds_between else waiting + 1
        if seconds > pace.most_seconds and not self._has_tenant_queue_share(request, 0, places):
            raise QueueTooSlow(waiting, seconds, pace.most_seconds)

    def _has_tenant_queue_share(self, request: Request, ahead: int, places: int) -> bool:
        """Whether the request's tenant has less than an equal part of the queue's ``places``, which others have filled.

        That part comes on top: with ``n`` tenants there are never more than 1 + 1/2 + ... + 1/n times as many as one
        may queue. Requests without an identity are all of one tenant.
        """
        if self._config.order != "fair-share" and request.spec.limits is None:
            return False
        own = self._queue.count_waiting(request.spec.tenant)
        others = self._queue.count_tenants() - (own > 0)
        return own + ahead < places // (others + 1)


DEFAULT_BURST_SECONDS = 10.0
MAX_BUCKETS = 4096
"""Most tenants remembered."""


@dataclass(slots=True)
class _TokenBucket:
    level: float
    filled: float
    """When the level was right."""
    rate: float
    burst: float
    empty_since: float | None = None
    """When it was last overdrawn; None while it is above zero."""

    def level_at(self, now: float) -> float:
        return min(self.burst, self.level + (now - self.filled) * self.rate)


class TenantQuota:
    """A queue limit and a token bucket for each tenant.

    Prompts are charged when they join the queue and output tokens as they are sampled. So a bucket can be overdrawn by
    what is under way; the tenant waits until it has filled up above zero again. Requests with one arrival are one call:
    what the first of them takes is not held against the others.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        """``config`` has the limits of tenants whose requests bring none."""
        self._limits = TenantLimits(
            max_queued=config.max_queued_per_tenant,
            tokens_per_second=config.tenant_tokens_per_second,
            token_burst=config.tenant_token_burst,
        )
        self._buckets: dict[str, _TokenBucket] = {}

    def check_request(self, request: Request, num_waiting: int) -> None:
        """``num_waiting``: of the tenant. Raises :class:`TenantQueueFull` or :class:`TenantRateExceeded`."""
        tenant, limits = request.spec.tenant, request.spec.limits or self._limits
        if limits.max_queued and num_waiting >= limits.max_queued:
            raise TenantQueueFull(tenant, limits.max_queued)
        if limits.tokens_per_second:
            bucket = self._refill_bucket(tenant, limits, request.spec.arrival)
            if bucket.empty_since is not None and bucket.empty_since < request.spec.arrival:
                wait = max(1, math.ceil(-bucket.level / bucket.rate))
                raise TenantRateExceeded(tenant, bucket.rate, wait)

    def charge_tokens(self, request: Request, num_tokens: int, now: float) -> None:
        limits = request.spec.limits or self._limits
        if limits.tokens_per_second:
            bucket = self._refill_bucket(request.spec.tenant, limits, now)
            bucket.level -= num_tokens
            if bucket.level <= 0 and bucket.empty_since is None:
                bucket.empty_since = now

    def _refill_bucket(self, tenant: str, limits: TenantLimits, now: float) -> _TokenBucket:
        rate = limits.tokens_per_second
        burst = limits.token_burst or DEFAULT_BURST_SECONDS * rate
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._forget_buckets(now)
            bucket = self._buckets[tenant] = _TokenBucket(burst, now, rate, burst)
        elif now > bucket.filled:
            bucket.level = bucket.level_at(now)
            bucket.filled = now
            if bucket.level > 0:
                bucket.empty_since = None
        bucket.rate, bucket.burst = rate, burst
        return bucket

    def _forget_buckets(self, now: float) -> None:
        """Full buckets, and where few are, half of all: those that lack least, so that few tokens are given away."""
        lacking = {t: b for t, b in self._buckets.items() if b.level_at(now) < b.burst}
        if len(lacking) > MAX_BUCKETS // 2:
            emptiest = sorted(lacking, key=lambda t: lacking[t].level_at(now) - lacking[t].burst)
            lacking = {t: lacking[t] for t in emptiest[: MAX_BUCKETS // 2]}
        self._buckets = lacking
