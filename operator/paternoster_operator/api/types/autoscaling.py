"""Types of ``spec.autoscaling`` that say when: scaling to zero, and bounds by the hour; no logic."""

from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from paternoster_operator.api.types.fields import INT32, Document


class ColdRequestPolicy(StrEnum):
    HOLD = "Hold"
    REJECT = "Reject"


class ScaleToZero(Document):
    """No replicas while there are no requests."""

    enabled: bool = False
    """Goes with minReplicas 0, and only with it."""
    idle_seconds: int = Field(default=600, ge=1, le=86_400, json_schema_extra=INT32)
    """Time after the end of the last request at which the last replicas go."""
    activation_timeout_seconds: int = Field(default=900, ge=1, le=86_400, json_schema_extra=INT32)
    """Longest time for which a request that finds no replica is held."""
    cold_request_policy: ColdRequestPolicy = ColdRequestPolicy.HOLD
    """What a request that finds no replica meets: Hold waits for one, Reject answers 503 with Retry-After. Either way
    the request wakes the fleet."""


class Weekday(StrEnum):
    """In the order of ``datetime.weekday()``."""

    MONDAY = "Monday"
    TUESDAY = "Tuesday"
    WEDNESDAY = "Wednesday"
    THURSDAY = "Thursday"
    FRIDAY = "Friday"
    SATURDAY = "Saturday"
    SUNDAY = "Sunday"


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PydanticCustomError("time_zone", "must be a time zone of the IANA database") from error
    return name


TimeZone = Annotated[
    str,
    Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"),
    AfterValidator(_known_zone),
]
"""A name of the IANA database. A schema can check its form alone: a name that is unknown makes the spec invalid."""
TimeOfDay = Annotated[str, Field(max_length=5, pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
"""Hours and minutes on a wall clock, such as 07:30."""
ScheduledReplicas = Annotated[int, Field(ge=0, le=1000, json_schema_extra=INT32)]


class Schedule(Document):
    """Bounds for replicas at certain hours of certain days."""

    name: str = Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    """Unique among the schedules."""
    timezone: TimeZone = "UTC"
    """Time zone of the days and hours, such as Europe/Berlin; daylight saving time is kept."""
    days: list[Weekday] = Field(default_factory=list, max_length=7)
    """Days on which it begins; every day when empty."""
    start: TimeOfDay
    end: TimeOfDay
    """First minute that is out of it; on the next day where it is not after start."""
    min_replicas: ScheduledReplicas | None = None
    """Fewest replicas meanwhile; autoscaling.minReplicas when unset."""
    max_replicas: ScheduledReplicas | None = None
    """Most replicas meanwhile; autoscaling.maxReplicas when unset."""
