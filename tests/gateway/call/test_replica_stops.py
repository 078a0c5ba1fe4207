"""A request is blamed for stops that it alone was at, and not for those that chance explains."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_gateway.call.suspicion import (
    MAX_REMEMBERED_STOPS,
    MAX_STOPS,
    MAX_SUSPECTS,
    MIN_STOPS,
    MIN_STOPS_IN_COMPANY,
    SUSPECT_SECONDS,
    WINDOW_SECONDS,
    ReplicaStops,
    SuspectedCall,
)

POISON = b"poison"


def call_of(stops: ReplicaStops, digest: bytes, fleet: str = "f") -> SuspectedCall:
    return SuspectedCall(stops, fleet, lambda: digest)


def record_stop(url: str, now: float, *calls: SuspectedCall) -> None:
    for call in calls:
        call.record_stop(url, now, suspected=True)


def test_request_that_is_alone_is_blamed_for_its_second_stop() -> None:
    stops = ReplicaStops()
    poison = call_of(stops, POISON)
    record_stop("a", 0, poison)
    assert not poison.is_blamed(3, 0)
    record_stop("b", 5, poison)
    assert poison.is_blamed(3, 5)


def test_requests_that_share_two_stops_are_not_blamed_until_one_is_alone() -> None:
    stops = ReplicaStops()
    poison, other = call_of(stops, POISON), call_of(stops, b"other")
    for now, url in enumerate("ab"):
        record_stop(url, 10.0 * now, poison, other)
        assert not poison.is_blamed(3, 10.0 * now)
        assert not other.is_blamed(3, 10.0 * now)
    record_stop("c", 20, poison)
    assert poison.is_blamed(3, 20)
    assert not other.is_blamed(3, 20)


def test_same_body_sent_twice_is_one_suspect() -> None:
    stops = ReplicaStops()
    calls = [call_of(stops, POISON) for _ in range(3)]
    for now, url in enumerate("ab"):
        record_stop(url, now, *calls)
    assert all(call.is_blamed(3, 1) for call in calls)


def test_request_is_not_blamed_where_replicas_stop_without_it() -> None:
    stops = ReplicaStops()
    for number in range(4):
        stops.record_stop("f", f"x{number}", float(number))
    call = call_of(stops, b"innocent")
    record_stop("a", 5, call)
    record_stop("b", 10, call)
    assert not call.is_blamed(4, 10)
    assert call.is_blamed(4, 10 + WINDOW_SECONDS)
    other_fleet = call_of(stops, b"innocent", "g")
    record_stop("c", 5, other_fleet)
    record_stop("d", 10, other_fleet)
    assert other_fleet.is_blamed(4, 10)


def test_request_is_blamed_for_many_stops_whatever_else_stops() -> None:
    stops = ReplicaStops()
    call, other = call_of(stops, POISON), call_of(stops, b"other")
    for number in range(MAX_STOPS):
        assert not call.is_blamed(2, float(number))
        record_stop(f"r{number}", float(number), call, other)
        stops.record_stop("f", f"x{number}", float(number))
    assert call.is_blamed(2, float(MAX_STOPS))


def test_stops_long_after_the_request_came_are_more_likely_by_chance() -> None:
    for seconds, blamed in ((0.5, True), (SUSPECT_SECONDS, True), (30.0, False)):
        stops = ReplicaStops()
        stops.record_stop("f", "x", 0.0)
        call = call_of(stops, POISON)
        for now, url in enumerate("abc", 200):
            call.record_stop(url, now, suspected=True, seconds=seconds)
        assert call.is_blamed(4, 202.0) is blamed


def test_replica_that_only_closed_a_connection_did_not_stop() -> None:
    stops = ReplicaStops()
    call = call_of(stops, POISON)
    call.record_stop("a", 0, suspected=True, closed=True)
    call.record_stop("b", 5, suspected=True, closed=True)
    assert call.closed == ["a", "b"]
    call.judge_closed(["a"])
    assert not call.is_blamed(3, 5)
    assert [stop.url for stop in call.stops] == ["b"]
    assert call.closed == []


def test_connections_that_end_at_once_are_one_stop_and_later_ones_another() -> None:
    stops = ReplicaStops()
    first = stops.record_stop("f", "a", 0.0)
    assert stops.record_stop("f", "a", 1.0) is first
    assert stops.record_stop("f", "a", 30.0) is not first
    assert stops.record_stop("g", "a", 1.0) is not first


def test_memory_is_bounded() -> None:
    stops = ReplicaStops()
    for number in range(2 * MAX_REMEMBERED_STOPS):
        stops.record_stop("f", f"r{number}", 0.0)
    stop = stops.record_stop("f", "a", 0.0)
    for number in range(2 * MAX_SUSPECTS):
        stops.record_stop("f", "a", 0.0, str(number).encode())
    assert len(stop.suspects) == MAX_SUSPECTS
    assert len(stops._stops) == MAX_REMEMBERED_STOPS


@given(
    beside=st.lists(st.sets(st.integers(0, 7), max_size=8), min_size=MIN_STOPS, max_size=MIN_STOPS),
    num_replicas=st.integers(1, 8),
)
def test_poison_stops_three_replicas_at_most_and_none_beside_it_is_blamed(
    beside: list[set[int]], num_replicas: int
) -> None:
    """Two where nothing is beside it; where something is, it is sent the third time without other suspects."""
    stops = ReplicaStops()
    poison = call_of(stops, POISON)
    innocent = [call_of(stops, b"%d" % number) for number in range(8)]
    now, stopped = 0.0, 0
    while not poison.is_blamed(num_replicas, now):
        now += 10
        company = beside[stopped] if stopped < MIN_STOPS else ()
        record_stop(f"r{stopped}", now, poison, *(innocent[number] for number in company))
        stopped += 1
        assert stopped <= (MIN_STOPS_IN_COMPANY if any(beside) else MIN_STOPS)
        assert not any(call.is_blamed(num_replicas, now) for call in innocent)


@dataclass(eq=False)
class _Sent:
    call: SuspectedCall
    url: int
    at: float
    first: float
    """When the replica sends the first piece of it."""
    ends: float
    has_frames: bool = False
    stops: int = 0

    def move(self, url: int, now: float, rng: random.Random, prefill: float) -> None:
        self.url, self.at, self.first = url, now, now + rng.uniform(0.2, prefill)
        self.ends = self.first + rng.uniform(0.5, 15)


def _blame_under_kills(
    seed: int, kills: int, every: float, num_replicas: int, num_calls: int, prefill: float
) -> tuple[int, int]:
    """(requests blamed before their eighth stop, most stops of one) where replicas are killed at random.

    The requests have no part in it. ``prefill``: seconds until the first piece of an answer, at most.
    """
    rng, stops, now, blamed, most = random.Random(seed), ReplicaStops(), 0.0, 0, 0

    def begin() -> _Sent:
        sent = _Sent(call_of(stops, rng.randbytes(8)), 0, now, now, now)
        sent.move(rng.randrange(num_replicas), now, rng, prefill)
        return sent

    calls = [begin() for _ in range(num_calls)]
    for _ in range(kills):
        now += rng.expovariate(1 / every)
        calls = [begin() if call.ends < now else call for call in calls]
        killed = rng.randrange(num_replicas)
        hit = [call for call in calls if call.url == killed]
        stops.record_stop("f", str(killed), now)
        for call in hit:
            if now >= call.first:
                call.has_frames = True
                call.call.clear_stops()
                call.call.record_stop(str(killed), now, suspected=False)
            elif call.has_frames or now - call.at < SUSPECT_SECONDS:
                call.stops += 1
                seconds = now - call.at if call.has_frames else SUSPECT_SECONDS
                call.call.record_stop(str(killed), now, suspected=True, seconds=seconds)
        for call in hit:
            most = max(most, call.stops)
            if call.stops and call.call.is_blamed(num_replicas, now):
                blamed += len(call.call.stops) < MAX_STOPS
                calls.remove(call)
                calls.append(begin())
            else:
                call.move(rng.choice([url for url in range(num_replicas) if url != killed] or [0]), now, rng, prefill)
    return blamed, most


@pytest.mark.parametrize("prefill", [3.0, 30.0])
@pytest.mark.parametrize("every", [3.0, 6.0, 20.0, 60.0])
def test_requests_beside_killed_replicas_are_hardly_ever_blamed(every: float, prefill: float) -> None:
    """10,000 kills of 4 replicas under 8 requests, which are at their replicas without a frame for a time."""
    found = [_blame_under_kills(seed, 1000, every, 4, 8, prefill) for seed in range(10)]
    assert sum(blamed for blamed, _ in found) <= 4
    assert max(most for _, most in found) >= 3
