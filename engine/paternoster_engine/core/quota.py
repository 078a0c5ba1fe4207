"""How much one tenant may ask for: requests in the queue, tokens per second."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.errors import TenantQueueFull, TenantRateExceeded
from paternoster_engine.core.request import Request

DEFAULT_BURST_SECONDS = 10.0
MAX_BUCKETS = 4096
"""Tenants remembered before those with full buckets are forgotten."""


@dataclass(slots=True)
class _Bucket:
    level: float
    filled: float
    """When the level was right."""
    empty_since: float | None = None
    """When it was last overdrawn; None while it is above zero."""


class TenantQuota:
    """A queue limit and a token bucket for each tenant.

    Prompts are charged when they join the queue and output tokens as they are sampled. So a bucket can be overdrawn by
    what is under way; the tenant waits until it has filled up above zero again. Requests with one arrival are one call:
    what the first of them takes is not held against the others.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._max_queued = config.max_queued_per_tenant
        self._rate = config.tenant_tokens_per_second
        self._burst = config.tenant_token_burst or DEFAULT_BURST_SECONDS * self._rate
        self._buckets: dict[str, _Bucket] = {}

    def check(self, request: Request, waiting: Sequence[Request]) -> None:
        """Raises :class:`TenantQueueFull` or :class:`TenantRateExceeded`."""
        tenant = request.tenant
        if self._max_queued and sum(other.tenant == tenant for other in waiting) >= self._max_queued:
            raise TenantQueueFull(tenant, self._max_queued)
        if self._rate:
            bucket = self._bucket(tenant, request.arrival)
            if bucket.empty_since is not None and bucket.empty_since < request.arrival:
                raise TenantRateExceeded(tenant, self._rate, max(1, math.ceil(-bucket.level / self._rate)))

    def charge(self, request: Request, num_tokens: int, now: float) -> None:
        if self._rate:
            bucket = self._bucket(request.tenant, now)
            bucket.level -= num_tokens
            if bucket.level <= 0 and bucket.empty_since is None:
                bucket.empty_since = now

    def _bucket(self, tenant: str, now: float) -> _Bucket:
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._forget_full(now)
            bucket = self._buckets[tenant] = _Bucket(self._burst, now)
        elif now > bucket.filled:
            bucket.level = self._level(bucket, now)
            bucket.filled = now
            if bucket.level > 0:
                bucket.empty_since = None
        return bucket

    def _level(self, bucket: _Bucket, now: float) -> float:
        return min(self._burst, bucket.level + (now - bucket.filled) * self._rate)

    def _forget_full(self, now: float) -> None:
        self._buckets = {t: b for t, b in self._buckets.items() if self._level(b, now) < self._burst}
