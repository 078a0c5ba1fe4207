"""The identity of a client, by its API key: what the gateway reports to an engine about each request. Pure."""

import base64
import binascii
from datetime import datetime
from enum import IntEnum

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from paternoster_contract.limits import MAX_PRIORITY, MIN_PRIORITY

HEADER = "X-Paternoster-Identity"
"""From the gateway to engines: :meth:`Identity.encode`."""
LANE_HEADER = "X-Paternoster-Lane"
"""From the gateway to engines: :meth:`Lane.encode` of a request that is not in the first lane."""
MAX_HEADER = 2048
"""Characters of it; the longest that :meth:`Identity.encode` makes is some 500."""
TENANT_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._@-]{0,62}[A-Za-z0-9])?$"


class Lane(IntEnum):
    """Lanes in which requests compete: each gets what those before it leave, and gives way to them."""

    ONLINE = 0
    BATCH = 1

    def encode(self) -> str:
        """The value of :data:`LANE_HEADER`."""
        return self.name.lower()

    @classmethod
    def decode(cls, value: str) -> "Lane":
        """The opposite of :meth:`encode`; raises ``ValueError`` for anything else."""
        for lane in cls:
            if value == lane.encode():
                return lane
        raise ValueError(f"must be {' or '.join(lane.encode() for lane in cls)} (got {value[:16]!r})")


class Identity(BaseModel):
    """A tenant and what it may ask for; limits that are None are the engine's own."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, allow_inf_nan=False
    )

    tenant: str = Field(pattern=TENANT_PATTERN, description="whom fair shares, quotas and cached prompts belong to")
    weight: float | None = Field(default=None, gt=0, le=1000, description="fair share relative to other tenants")
    min_priority: int = Field(default=0, ge=MIN_PRIORITY, le=MAX_PRIORITY, description="most urgent class it may ask")
    max_priority: int = Field(default=MAX_PRIORITY, ge=MIN_PRIORITY, le=MAX_PRIORITY, description="least urgent one")
    max_queued: int | None = Field(default=None, ge=0, le=2**31 - 1, description="waiting requests; 0 for no limit")
    max_running: int | None = Field(
        default=None, ge=0, le=2**31 - 1, description="sequences that run at once; 0 for no limit"
    )
    tokens_per_second: float | None = Field(
        default=None, ge=0, le=1e9, description="prompt and output tokens; 0 for no limit"
    )
    token_burst: float | None = Field(
        default=None, ge=0, le=1e12, description="tokens it may use at once; 0 for ten seconds' worth"
    )
    expires: datetime | None = Field(default=None, description="when its key opens nothing any more")

    @model_validator(mode="after")
    def _check_consistency(self) -> "Identity":
        if self.min_priority > self.max_priority:
            raise ValueError(f"minPriority is {self.min_priority}: must be at most maxPriority, {self.max_priority}")
        if self.expires is not None and self.expires.tzinfo is None:
            raise ValueError(f"expires is {self.expires.isoformat()}: must have an offset, such as Z (RFC 3339)")
        return self

    def is_expired(self, now: float) -> bool:
        """Whether its key opens nothing any more at ``now``, in Unix seconds."""
        return self.expires is not None and now >= self.expires.timestamp()

    def encode(self) -> str:
        """The value of :data:`HEADER`: JSON of what is not default, in URL-safe base64."""
        text = self.model_dump_json(exclude_defaults=True, exclude={"expires"}, by_alias=True)
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, value: str) -> "Identity":
        """The opposite of :meth:`encode`; raises ``ValueError`` for anything else."""
        if len(value) > MAX_HEADER:
            raise ValueError(f"it is longer than {MAX_HEADER} characters")
        try:
            return cls.model_validate_json(base64.b64decode(value, altchars=b"-_", validate=True))
        except (binascii.Error, ValidationError) as error:
            raise ValueError("it is no identity in JSON and base64") from error


def of_plain_key(digest: str) -> Identity:
    """Who sends a key of which nothing but its ``digest`` is known: a tenant of its own, named after that."""
    return Identity(tenant=f"key-{digest[:8]}")
