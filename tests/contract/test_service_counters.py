"""Counters of fair shares: a return is lifted to the least of all that wait, or run, and none of them is looked at."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_contract.queueing import least_served, service_counters
from paternoster_contract.queueing.least_served import LeastServed
from paternoster_contract.queueing.service_counters import ServiceCounters

TENANTS = "abcdefgh"


class ScannedCounters:
    """The definition: the least counter is searched among all that wait, or run."""

    def __init__(self) -> None:
        self.counters = Counter[str]()
        self.waiting: set[str] = set()
        self.running: set[str] = set()
        self.last_to_leave = ""

    def begin_waiting(self, tenant: str) -> None:
        active = self.waiting or self.running
        floor = min((self.counters[other] for other in active), default=self.counters[self.last_to_leave])
        self.counters[tenant] = max(self.counters[tenant], floor)
        self.waiting.add(tenant)

    def end_waiting(self, tenant: str) -> None:
        self.waiting.discard(tenant)
        self.last_to_leave = tenant


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["wait", "run", "charge"]), st.sampled_from(TENANTS), st.sampled_from([-7, -1, 0, 1, 2, 9])
        ),
        max_size=200,
    ),
    st.sampled_from([0, 64]),
)
def test_a_tenant_that_comes_is_lifted_to_the_least_counter(steps: list[tuple[str, str, int]], limit: int) -> None:
    """Whatever came, went, and was charged or given back before; ``limit``: how soon entries that have gone leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(least_served, "MIN_LIMIT", limit)
        counters, scanned = ServiceCounters(), ScannedCounters()
        for what, tenant, cost in steps:
            match what:
                case "charge":
                    counters.add(tenant, cost, 0.3)
                    scanned.counters[tenant] += cost / 0.3  # type: ignore[assignment]
                case "wait" if tenant in scanned.waiting:
                    counters.end_waiting(tenant)
                    scanned.end_waiting(tenant)
                case "wait":
                    counters.begin_waiting(tenant)
                    scanned.begin_waiting(tenant)
                case "run" if tenant in scanned.running:
                    counters.end_running(tenant)
                    scanned.running.discard(tenant)
                case _:
                    counters.begin_running(tenant)
                    scanned.running.add(tenant)
            assert {each: counters[each] for each in TENANTS} == {each: scanned.counters[each] for each in TENANTS}


class ReadCounters(dict[str, float]):
    """Counts how often a counter is read."""

    reads = 0

    def __getitem__(self, tenant: str) -> float:
        self.reads += 1
        return super().__getitem__(tenant)


def test_the_least_counter_is_found_without_a_look_at_all() -> None:
    number = 2_000
    counters = ReadCounters((f"t{i}", 0.0) for i in range(number))
    least = LeastServed(counters)
    for tenant in counters:
        least.add(tenant)
    counters.reads = 0
    for i in range(3 * number):
        assert least.find_least() == i // number
        counters.update({f"t{i % number}": i // number + 1.0})
    assert counters.reads <= 4 * 3 * number


def test_tenants_that_come_and_go_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_counters, "MAX_COUNTERS", 8)
    counters = ServiceCounters()
    counters.begin_waiting("stays")
    for number in range(1_000):
        tenant = f"t{number}"
        counters.begin_waiting(tenant)
        counters.begin_running(tenant)
        counters.end_waiting(tenant)
        counters.add(tenant, 1 + number % 3, 1.0)
        counters.end_running(tenant)
        assert len(counters.by_tenant) <= 8 + 2 * 3
        assert len(counters._waiting._heap) <= least_served.MIN_LIMIT
        assert not counters._running._heap
    assert "stays" in counters.by_tenant


def test_many_that_wait_are_not_forgotten_and_those_that_owe_most_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_counters, "MAX_COUNTERS", 4)
    counters = ServiceCounters()
    waiting = [f"w{i}" for i in range(10)]
    for tenant in waiting:
        counters.begin_waiting(tenant)
    for number in range(40):
        counters.add(f"owes-{number}", number + 1, 1.0)
    counters.begin_waiting("last")
    assert set(counters.by_tenant) == {*waiting, "owes-38", "owes-39", "last"}
