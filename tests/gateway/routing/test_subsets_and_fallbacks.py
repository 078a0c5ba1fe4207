"""Requests that may go to some replicas alone, and the replicas that a proxy sends a request to in place of its own."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.call.router import Router
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Queue, Result, RoutedRequest, Send
from paternoster_gateway.routing.limits import MAX_ATTEMPTS

ADDRESSES = [f"10.0.0.{number}:8000" for number in range(12)]
ADMISSION = ClientAdmission("m")


def make_router(count: int, **fields: object) -> Router:
    woken: list[Sequence[RoutedRequest]] = []
    router = Router(Balancer(), lambda: 100.0, lambda: 0.0, woken.append)
    replicas = [Replica(name=each, url=f"http://{each}", ready=True) for each in ADDRESSES[:count]]
    router.change_table(RoutingTable(models={"m": ModelRoute(replicas=replicas, **fields)}))  # type: ignore[arg-type]
    return router


def send(router: Router, subset: Sequence[str] | None = None) -> tuple[RoutedRequest, str]:
    request = router.open_request(ADMISSION, subset=None if subset is None else frozenset(subset))
    decision = router.decide(request, ADMISSION)
    assert isinstance(decision, Send)
    return request, decision.replica.url


@given(st.sets(st.sampled_from(ADDRESSES), min_size=1), st.integers(1, 20))
def test_a_request_goes_to_its_subset_alone(subset: set[str], count: int) -> None:
    router = make_router(len(ADDRESSES))
    urls = {f"http://{each}" for each in subset}
    for _ in range(count):
        request, url = send(router, sorted(subset))
        assert url in urls
        assert {each.url for each in router.list_fallbacks(request, ADMISSION)} <= urls - {url}
    assert set(router.balancer.in_flight) <= urls


@pytest.mark.parametrize("subset", [(), ("10.9.9.9:8000",), ("10.0.0.11:8000",)])
def test_a_subset_without_a_ready_replica_is_rejected_at_once(subset: tuple[str, ...]) -> None:
    router = make_router(3)
    with pytest.raises(GatewayError) as rejected:
        router.decide(router.open_request(ADMISSION, subset=frozenset(subset)), ADMISSION)
    assert rejected.value.status == 503
    assert isinstance(router.decide(router.open_request(ADMISSION), ADMISSION), Send)


def test_a_subset_that_is_full_is_waited_for() -> None:
    router = make_router(3, max_in_flight=1)
    first, url = send(router, ADDRESSES[:1])
    waiting = router.open_request(ADMISSION, subset=frozenset(ADDRESSES[:1]))
    assert isinstance(router.decide(waiting, ADMISSION), Queue)
    router.end_request(first)
    decision = router.decide(waiting, ADMISSION)
    assert isinstance(decision, Send)
    assert decision.replica.url == url


def test_fallbacks_are_the_least_loaded_others() -> None:
    router = make_router(3)
    for subset, count in ((ADDRESSES[:1], 3), (ADDRESSES[1:2], 2)):
        for _ in range(count):
            send(router, subset)
    request, url = send(router)
    assert url == "http://10.0.0.2:8000"
    fallbacks = [each.url for each in router.list_fallbacks(request, ADMISSION)]
    assert fallbacks == ["http://10.0.0.1:8000", "http://10.0.0.0:8000"]


def test_fallbacks_are_bounded_and_have_a_place() -> None:
    router = make_router(12, max_in_flight=1)
    request, url = send(router)
    fallbacks = [each.url for each in router.list_fallbacks(request, ADMISSION)]
    assert len(set(fallbacks) - {url}) == len(fallbacks) == MAX_ATTEMPTS - 1
    for _ in range(11):
        last, _ = send(router)
    assert router.list_fallbacks(last, ADMISSION) == []


def test_an_ejected_replica_is_no_fallback() -> None:
    router = make_router(2)
    request, url = send(router)
    router.report_result(request, url, Result.UNREACHABLE)
    following, other = send(router)
    assert other != url
    assert router.list_fallbacks(following, ADMISSION) == []


@given(st.lists(st.booleans(), min_size=5, max_size=40))
def test_listing_fallbacks_changes_no_decision(listed: list[bool]) -> None:
    """Beside it a router that lists none."""
    router, other = make_router(5), make_router(5)
    for each in listed:
        request, url = send(router)
        assert url == send(other)[1]
        if each:
            router.list_fallbacks(request, ADMISSION)


def test_a_fallback_is_counted_where_it_is() -> None:
    router = make_router(3)
    request, url = send(router)
    fallbacks = [each.url for each in router.list_fallbacks(request, ADMISSION)]
    router.report_fallback(request, [url, fallbacks[0]], fallbacks[1])
    assert router.balancer.in_flight == {fallbacks[1]: 1}
    router.report_result(request, fallbacks[1], Result.ANSWERED)
    assert {send(router)[1] for _ in range(4)} == {fallbacks[1]}, "those that did not answer are ejected"
    router.end_request(request)
    assert router.balancer.in_flight == {fallbacks[1]: 4}


def test_a_request_that_reached_no_replica_of_its_fleet_is_counted_nowhere() -> None:
    router = make_router(2)
    request, url = send(router)
    router.report_fallback(request, [url], None)
    assert router.balancer.in_flight == {}
    router.end_request(request)
