"""Bounds of a manifest's replicas at a moment, with the schedules that hold."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from paternoster_operator.api.types.autoscaling import Schedule, Weekday
from paternoster_operator.api.v1alpha1 import Autoscaling

_WEEK: Final = tuple(Weekday)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most replicas, and the names of the schedules that hold."""

    minimum: int
    maximum: int
    schedules: tuple[str, ...] = ()


def bounds_at(autoscaling: Autoscaling, at: datetime | None) -> Bounds:
    """The highest minimum and the lowest maximum of what holds ``at``; where they cross, the maximum counts.

    The maximum wins because it limits spending. Without a time no schedule holds. Raises ``ValueError`` for a time
    without a zone.
    """
    if at is not None and at.tzinfo is None:
        raise ValueError(f"at is {at.isoformat()}: must have a time zone")
    held = [schedule for schedule in autoscaling.schedules if at is not None and in_force(schedule, at)]
    low, high = autoscaling.min_replicas, autoscaling.max_replicas
    maximum = min([high, *(max(s.max_replicas, low) for s in held if s.max_replicas is not None)])
    minimum = max([low, *(s.min_replicas for s in held if s.min_replicas is not None)])
    return Bounds(min(minimum, maximum), maximum, tuple(schedule.name for schedule in held))


def in_force(schedule: Schedule, at: datetime) -> bool:
    """Whether ``at`` lies in it: begun today, or yesterday and not yet over."""
    local = at.astimezone(ZoneInfo(schedule.timezone))
    now, start, end = local.time(), time.fromisoformat(schedule.start), time.fromisoformat(schedule.end)
    if start < end:
        return start <= now < end and _begins_on(schedule, local)
    if now >= start:
        return _begins_on(schedule, local)
    return now < end and _begins_on(schedule, local - timedelta(days=1))


def _begins_on(schedule: Schedule, local: datetime) -> bool:
    return not schedule.days or _WEEK[local.weekday()] in schedule.days
