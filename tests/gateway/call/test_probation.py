"""Calls that several replicas stopped with have a turn of their own, one at a time for each fleet."""

from collections.abc import Sequence

from paternoster_gateway.call.probation import Probation
from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_gateway.routing.retry_budget import RetryBudget


class Woken(list[RoutedRequest]):
    """Requests whose turn has begun, in order."""

    def wake(self, requests: Sequence[RoutedRequest]) -> None:
        self.extend(requests)


def request_of(fleet: str = "fleet") -> RoutedRequest:
    return RoutedRequest("m", fleet, "m", "", RetryBudget())


def test_a_call_that_comes_as_a_turn_ends_waits_for_the_one_before_it() -> None:
    woken = Woken()
    probation = Probation(woken.wake)
    first, second, third = (request_of() for _ in range(3))
    assert probation.request_turn(first)
    assert not probation.request_turn(second)
    probation.end_turn(first)
    assert not probation.request_turn(third)
    assert woken == [second]
    assert probation.has_turn(second)
    probation.end_turn(second)
    assert woken == [second, third]


def test_a_call_that_leaves_while_it_waits_leaves_nothing() -> None:
    woken = Woken()
    probation = Probation(woken.wake)
    first, second, third = (request_of() for _ in range(3))
    assert probation.request_turn(first)
    assert not probation.request_turn(second)
    for _ in range(2):
        probation.end_turn(second)
    probation.end_turn(first)
    assert probation.request_turn(third)
    probation.end_turn(third)
    assert probation.fleets == []
    assert woken == []


def test_fleets_do_not_wait_for_each_other() -> None:
    probation = Probation(Woken().wake)
    one, other = request_of("one"), request_of("other")
    assert probation.request_turn(one)
    assert probation.request_turn(other)
    assert sorted(probation.fleets) == ["one", "other"]
    probation.end_turn(one)
    probation.end_turn(other)
    assert probation.fleets == []
