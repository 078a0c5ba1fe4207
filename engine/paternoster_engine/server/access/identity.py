"""Whom a request is from, and what that one may ask for."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Protocol, TypeVar

from fastapi import Depends, Request

from paternoster_contract.access.identity import HEADER, LANE_HEADER, Identity, Lane, of_plain_key
from paternoster_contract.access.keys import client_key, digest_key
from paternoster_contract.limits import MAX_PRIORITY
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.server.errors import InvalidValue

T = TypeVar("T")


class SenderFields(Protocol):
    """What a body says of its sender."""

    @property
    def cache_salt(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class TenantRules:
    """What the server makes of identities."""

    believes_header: bool = False
    """Only a gateway has a key of the API, and so it alone can have sent the header."""
    isolates_cache: bool = True
    min_priority: int = 0
    """Lowest priority of requests without an identity, see ``max_priority``."""
    max_priority: int = MAX_PRIORITY

    def identity_of_key(self, key: str) -> Identity:
        """Who sends ``key``, which opens the API and is one of a plain list: a tenant of its own."""
        identity = of_plain_key(digest_key(key))
        return identity.model_copy(update={"min_priority": self.min_priority, "max_priority": self.max_priority})

    @classmethod
    def from_args(cls, args: EngineArgs) -> "TenantRules":
        return cls(args.identity_header, args.cache_isolation == "tenant", args.min_priority, args.max_priority)


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: an identity, or None for a client without a key, and the lane of its requests."""

    rules: TenantRules
    identity: Identity | None = None
    lane: Lane = Lane.ONLINE

    @property
    def tenant(self) -> str:
        """A key says who its client is; clients without one are one tenant, whatever their bodies say."""
        return "" if self.identity is None else self.identity.tenant

    def find_limits(self, config: SchedulerConfig) -> TenantLimits | None:
        """The tenant's own limits; those that its key leaves out are the engine's."""
        who = self.identity
        if who is None:
            return None
        rate, burst = config.tenant_tokens_per_second, config.tenant_token_burst
        if who.tokens_per_second is not None:
            rate, burst = who.tokens_per_second, 0.0
        return TenantLimits(
            weight=config.tenant_weights.get(who.tenant, 1.0) if who.weight is None else who.weight,
            max_queued=config.max_queued_per_tenant if who.max_queued is None else who.max_queued,
            max_running=config.max_running_per_tenant if who.max_running is None else who.max_running,
            tokens_per_second=rate,
            token_burst=burst if who.token_burst is None else who.token_burst,
        )

    def cache_scope(self, body: SenderFields, adapter: str = "") -> bytes:
        """Scope of the cached prefixes it may be served from, and adds to; ``adapter``: digest of its rows' adapter."""
        isolated = self.identity is not None and self.rules.isolates_cache
        # Without an adapter as it was before there were any: other engines of a fleet have the same keys.
        further = (adapter,) if adapter else ()
        return cache_scope(self.tenant if isolated else "", body.cache_salt or "", *further)

    def check_priority(self, priority: int) -> None:
        """Raises :class:`InvalidValue` for a class that the caller may not ask for."""
        bounds = self.rules if self.identity is None else self.identity
        if not bounds.min_priority <= priority <= bounds.max_priority:
            whose = "this engine's clients" if self.identity is None else "your key"
            raise InvalidValue(
                "priority",
                f"priority: {whose} may ask for {bounds.min_priority} to {bounds.max_priority} (got {priority})",
            )


def cache_scope(*names: str) -> bytes:
    """The scope of all requests with these ``names``, such as their tenant and salt; one for all without any."""
    if not any(names):
        return b""
    return blake2b(json.dumps(names).encode(), digest_size=16, person=b"cache scope").digest()


def tenant_of(request: Request) -> str:
    """Return the tenant of the key that the request came with; empty where there is none."""
    try:
        identity = _identify_caller(request).identity
    except InvalidValue:
        return ""
    return "" if identity is None else identity.tenant


async def identify_caller(request: Request) -> Caller:
    """Raises :class:`InvalidValue` for an identity that no gateway sends."""
    return _identify_caller(request)


def _identify_caller(request: Request) -> Caller:
    rules: TenantRules = request.app.state.tenants
    if not rules.believes_header:
        return Caller(rules, rules.identity_of_key(client_key(request.headers)) if request.app.state.has_keys else None)
    identity = _read_header(request, HEADER, Identity.decode)
    return Caller(rules, identity, _read_header(request, LANE_HEADER, Lane.decode) or Lane.ONLINE)


def _read_header(request: Request, name: str, decode: Callable[[str], T]) -> T | None:
    """Decode the gateway's header ``name``; None where the request has none. Raises :class:`InvalidValue`."""
    values: Sequence[str] = request.headers.getlist(name)
    if not values:
        return None
    try:
        if len(values) > 1:
            raise ValueError("it is there more than once")
        return decode(values[0])
    except ValueError as error:
        raise InvalidValue(name, f"{name}: {error}") from error


From = Annotated[Caller, Depends(identify_caller)]
