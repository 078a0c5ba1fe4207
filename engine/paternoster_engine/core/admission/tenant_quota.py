"""What a tenant may use: places in the queue, and tokens, which are reserved at admission and settled at the end."""

import math
from dataclasses import dataclass

from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.core.errors import TenantQueueFull, TenantRateExceeded
from paternoster_engine.core.request import Request

DEFAULT_BURST_SECONDS = 10.0
MAX_BUCKETS = 4096
"""Most tenants remembered, besides those with requests under way."""
MIN_PACE_TOKENS = 16
"""Tokens of an answer by which is measured how fast one is sampled."""
PACE_FADE = 0.99
"""The fastest pace is forgotten by this factor for each answer: after some hundred it counts for a third."""


@dataclass(slots=True)
class TokenBucket:
    level: float
    filled: float
    """When the level was right."""
    rate: float
    burst: float
    sequences: int = 0
    """Under way, waiting ones included."""
    reserved: int = 0
    """Tokens that their answers may still get."""

    def level_at(self, now: float) -> float:
        return min(self.burst, self.level + (now - self.filled) * self.rate)

    def refill_tokens(self, now: float) -> None:
        if now > self.filled:
            self.level, self.filled = self.level_at(now), now

    def lowest_level(self, pace: float) -> float:
        """The lowest that the level gets where all answers take all that they may, each at ``pace`` tokens/s at most.

        ``sequences`` answers take no more than ``sequences * pace`` tokens a second, and the bucket gains ``rate``.
        """
        gained = self.rate / (self.sequences * pace) if self.sequences else 1.0
        return self.level - self.reserved * max(0.0, 1.0 - gained)


@dataclass(slots=True)
class _Reservation:
    """What is reserved for one request."""

    bucket: TokenBucket
    prompt: int
    """Tokens charged for its prompt."""
    output: int
    """Tokens that it may still get."""


class TenantQuota:
    """A queue limit and a token bucket for each tenant.

    At admission a request is charged its prompt, and the tokens that its answer may get are reserved. Output is charged
    as it is sampled, and at the end the rest is returned, with the part of the prompt that was never computed. A call
    is admitted while the bucket stays above zero with all that is reserved, so it is overdrawn by one call at most. Of
    what is reserved counts only what the bucket does not gain while it is sampled: a tenant whose answers together are
    slower than its rate may have any number of tokens reserved.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        """``config`` has the limits of tenants whose requests bring none."""
        self._limits = TenantLimits(
            max_queued=config.max_queued_per_tenant,
            tokens_per_second=config.tenant_tokens_per_second,
            token_burst=config.tenant_token_burst,
        )
        self._buckets: dict[str, TokenBucket] = {}
        self._reservations: dict[Request, _Reservation] = {}
        self._pace = math.inf
        """Tokens a second of the fastest answer of late; infinite until one was measured."""

    def check_request(self, request: Request, num_waiting: int) -> None:
        """``num_waiting``: of the tenant. Raises :class:`TenantQueueFull` or :class:`TenantRateExceeded`."""
        tenant, limits = request.spec.tenant, request.spec.limits or self._limits
        if limits.max_queued and num_waiting >= limits.max_queued:
            raise TenantQueueFull(tenant, limits.max_queued)
        if limits.tokens_per_second and request not in self._reservations:
            bucket = self._find_bucket(tenant, limits, request.spec.arrival)
            if bucket.lowest_level(self._pace) <= 0:
                wait = max(1, math.ceil((bucket.reserved - bucket.level) / bucket.rate))
                raise TenantRateExceeded(tenant, bucket.rate, wait)

    def reserve_tokens(self, request: Request, *, goes_on: bool) -> None:
        """Charge the prompt and reserve the answer of ``request``, once; if it ``goes_on`` here, the rest alone."""
        limits = request.spec.limits or self._limits
        if limits.tokens_per_second and request not in self._reservations:
            bucket = self._find_bucket(request.spec.tenant, limits, request.spec.arrival)
            prompt = 0 if goes_on else request.num_prompt
            output = request.width * (request.params.max_tokens - len(request.output))
            bucket.level -= prompt
            bucket.reserved += output
            bucket.sequences += request.width
            self._reservations[request] = _Reservation(bucket, prompt, output)

    def charge_output(self, request: Request, num_tokens: int, now: float) -> None:
        """Charge sampled tokens, of all sequences of ``request``, to what is reserved for it."""
        reservation = self._reservations.get(request)
        if reservation is not None:
            bucket = reservation.bucket
            bucket.refill_tokens(now)
            bucket.level -= num_tokens
            bucket.reserved -= num_tokens
            reservation.output -= num_tokens

    def settle_request(self, request: Request) -> None:
        """Return what a request has not used that ends, or is not queued after all; the second time nothing."""
        reservation = self._reservations.pop(request, None)
        if reservation is not None:
            bucket = reservation.bucket
            bucket.level += max(0, reservation.prompt - request.max_computed)
            bucket.reserved -= reservation.output
            bucket.sequences -= request.width
        first, last, tokens = request.first_token, request.last_token, len(request.output) - 1
        if first is not None and last is not None and last > first and tokens >= MIN_PACE_TOKENS:
            pace = tokens / (last - first)
            self._pace = pace if self._pace == math.inf else max(pace, self._pace * PACE_FADE)

    def _find_bucket(self, tenant: str, limits: TenantLimits, now: float) -> TokenBucket:
        """The bucket of ``tenant``, filled until ``now``, with the limits that it has now."""
        rate = limits.tokens_per_second
        burst = limits.token_burst or DEFAULT_BURST_SECONDS * rate
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._forget_buckets(now)
            bucket = self._buckets[tenant] = TokenBucket(burst, now, rate, burst)
        else:
            bucket.refill_tokens(now)
        bucket.rate, bucket.burst = rate, burst
        return bucket

    def _forget_buckets(self, now: float) -> None:
        """Full buckets, and where few are, half of all: those that lack least, so that few tokens are given away.

        Those of tenants with requests under way are kept.
        """
        used = {t: b for t, b in self._buckets.items() if b.sequences}
        lacking = {t: b for t, b in self._buckets.items() if not b.sequences and b.level_at(now) < b.burst}
        if len(lacking) > MAX_BUCKETS // 2:
            emptiest = sorted(lacking, key=lambda t: lacking[t].level_at(now) - lacking[t].burst)
            lacking = {t: lacking[t] for t in emptiest[: MAX_BUCKETS // 2]}
        self._buckets = used | lacking
