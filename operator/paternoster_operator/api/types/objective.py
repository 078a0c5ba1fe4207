"""Types of what a fleet should achieve and may cost; no logic."""

from typing import Annotated

from pydantic import Field

from paternoster_operator.api.types.fields import INT32, Document

Milliseconds = Annotated[int, Field(ge=1, le=3_600_000, json_schema_extra=INT32)]


class Slo(Document):
    """Latencies to keep. They guard what demand and preemptions decide; they do not steer alone."""

    ttft_p95_milliseconds: Milliseconds | None = None
    """Time to first token that 95 of 100 requests stay within."""
    itl_p95_milliseconds: Milliseconds | None = None
    """Time between two tokens that 95 of 100 stay within."""


class Cost(Document):
    """What the fleet costs, for status.economics."""

    currency: str = Field(default="USD", max_length=3, pattern=r"^[A-Z]{3}$")
    """Code of ISO 4217."""
    gpu_hour: str = Field(max_length=20, pattern=r"^[0-9]+(\.[0-9]{1,6})?$")
    """Price of one GPU for one hour, such as "2.49"."""
