"""Bounds by the wall clock."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.api.replica_bounds import Bounds, bounds_at, in_force
from paternoster_operator.api.types.autoscaling import Schedule, Weekday
from paternoster_operator.api.v1alpha1 import Autoscaling

BERLIN = ZoneInfo("Europe/Berlin")
MONDAY = datetime(2026, 3, 23, tzinfo=BERLIN)


def schedule(start: str = "08:00", end: str = "18:00", **fields: Any) -> Schedule:
    named = {"name": "a", "timezone": "Europe/Berlin", **fields}
    return Schedule.model_validate({**named, "start": start, "end": end})


def autoscaling(*schedules: Schedule, low: int = 1, high: int = 8) -> Autoscaling:
    return Autoscaling(min_replicas=low, max_replicas=high, schedules=list(schedules))


@pytest.mark.parametrize(
    ("start", "end", "days", "at", "holds"),
    [
        ("08:00", "18:00", ["Monday"], MONDAY.replace(hour=8), True),
        ("08:00", "18:00", ["Monday"], MONDAY.replace(hour=17, minute=59, second=59), True),
        ("08:00", "18:00", ["Monday"], MONDAY.replace(hour=18), False),
        ("08:00", "18:00", ["Tuesday"], MONDAY.replace(hour=9), False),
        ("08:00", "18:00", [], MONDAY.replace(hour=9), True),
        ("22:00", "06:00", ["Monday"], MONDAY.replace(hour=23), True),
        ("22:00", "06:00", ["Monday"], MONDAY.replace(hour=5) + timedelta(days=1), True),
        ("22:00", "06:00", ["Monday"], MONDAY.replace(hour=5), False),
        ("22:00", "06:00", ["Sunday"], MONDAY.replace(hour=5), True),
        ("08:00", "08:00", ["Monday"], MONDAY.replace(hour=7) + timedelta(days=1), True),
        ("08:00", "18:00", [], datetime(2026, 3, 23, 7, 30, tzinfo=UTC), True),
        ("08:00", "18:00", [], datetime(2026, 3, 30, 6, 30, tzinfo=UTC), True),
        ("08:00", "18:00", [], datetime(2026, 3, 23, 6, 30, tzinfo=UTC), False),
    ],
    ids=["first minute", "last second", "end is out", "other day", "every day", "night before midnight",
         "night after midnight", "night began on another day", "night began yesterday", "whole day",
         "winter time", "summer time", "winter again"],
)  # fmt: skip
def test_when_a_schedule_holds(start: str, end: str, days: list[str], at: datetime, holds: bool) -> None:
    assert in_force(schedule(start, end, days=days), at) is holds


def test_overlapping_the_highest_minimum_and_the_lowest_maximum_count() -> None:
    held = (schedule(name="a", minReplicas=2, maxReplicas=6), schedule(name="b", minReplicas=3, maxReplicas=7))
    away = schedule("19:00", "20:00", name="c", minReplicas=8)
    assert bounds_at(autoscaling(*held, away), MONDAY.replace(hour=9)) == Bounds(3, 6, ("a", "b"))


def test_where_bounds_cross_the_maximum_counts() -> None:
    held = (schedule(name="a", minReplicas=5), schedule(name="b", maxReplicas=2))
    assert bounds_at(autoscaling(*held), MONDAY.replace(hour=9)) == Bounds(2, 2, ("a", "b"))


def test_without_a_time_the_specs_own_bounds_hold() -> None:
    assert bounds_at(autoscaling(schedule(minReplicas=4)), None) == Bounds(1, 8)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="must have a time zone"):
        bounds_at(autoscaling(), datetime(2026, 1, 1))


times = st.times().map(lambda time: time.strftime("%H:%M"))
some_schedules = st.lists(
    st.builds(
        lambda start, end, days, low, high: schedule(start, end, days=days, minReplicas=low, maxReplicas=high),
        times,
        times,
        st.lists(st.sampled_from(Weekday), unique=True),
        st.none() | st.integers(1, 8),
        st.none() | st.integers(1, 8),
    ),
    max_size=16,
)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))


@given(some_schedules, moments)
def test_bounds_are_ordered_and_within_the_specs_own(schedules: list[Schedule], at: datetime) -> None:
    found = bounds_at(autoscaling(*schedules), at)
    assert 1 <= found.minimum <= found.maximum <= 8
    held = [each for each in schedules if in_force(each, at)]
    assert all(found.maximum <= each.max_replicas for each in held if each.max_replicas is not None)
    assert len(found.schedules) == len(held)


@given(times, times, moments)
def test_a_schedule_and_its_complement_share_the_day(start: str, end: str, at: datetime) -> None:
    if start != end:
        assert in_force(schedule(start, end), at) != in_force(schedule(end, start), at)
