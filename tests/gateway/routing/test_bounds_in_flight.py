"""A bound on the requests in flight at a replica: never exceeded, no place idle while one waits, no overtaking."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import (
    EJECTING,
    Queue,
    Reject,
    RejectionCause,
    Result,
    Retry,
    RoutedRequest,
    Send,
    Turn,
)
from paternoster_gateway.routing.limits import EJECTION_SECONDS

URLS = ["http://a", "http://b", "http://c"]
ROLLING = URLS[0]
"""Started without the model's new name."""
HOLD_SECONDS = 50.0


@dataclass(eq=False)
class Client:
    """A request as the driver sees it."""

    request: RoutedRequest
    number: int
    until: float | None = None
    woken: bool = False
    reserved: str | None = None
    """The last place that was reserved for it."""
    attempts: list[str] = field(default_factory=list)


class Driver(RuleBasedStateMachine):
    """Routes a released request at once or later, as a loop with other work would."""

    def __init__(self) -> None:
        super().__init__()
        self.balancer = Balancer("this")
        self.now = 100.0
        self.clients: list[Client] = []
        self.ejected: dict[str, float] = {}
        self.hung: set[str] = set()
        self.serial = 0
        self.publish(2, URLS[:2])

    @rule(name=st.sampled_from(["", "", "new"]), sender=st.sampled_from("ab"), priority=st.sampled_from([0, 0, 5]))
    def a_request_arrives(self, name: str, sender: str, priority: int) -> None:
        self.serial += 1
        turn = Turn(priority, size=100)
        request = self.balancer.open_request("m", "uid", self.now, name=name, sender=sender, turn=turn)
        client = Client(request, self.serial)
        self.clients.append(client)
        self.route(client)

    @rule(bound=st.sampled_from([1, 1, 2, 3]), ready=st.sets(st.sampled_from(URLS)), spare=st.sampled_from([0, 0, 1]))
    def the_table_changes(self, bound: int, ready: set[str], spare: int) -> None:
        self.publish(bound, ready, spare)

    @precondition(lambda self: any(client.attempts for client in self.clients))
    @rule(data=st.data(), result=st.sampled_from([Result.ANSWERED, Result.ANSWERED, Result.FULL, Result.UNREACHABLE]))
    def an_attempt_ends(self, data: st.DataObject, result: Result) -> None:
        client = data.draw(st.sampled_from([each for each in self.clients if each.attempts]))
        url = client.attempts.pop()
        self.wake(self.balancer.on_attempt_end(client.request, url))
        if result in EJECTING:
            self.ejected[url] = self.now + EJECTION_SECONDS
        self.wake(self.balancer.on_result(client.request, url, result, self.now))
        if client.request.retry is Retry.NONE:
            self.end(client)
        else:
            self.route(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_leaves(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.clients)))

    @rule(url=st.sampled_from(URLS), hung=st.booleans())
    def a_probe_reports(self, url: str, hung: bool) -> None:
        (self.hung.add if hung else self.hung.discard)(url)
        self.wake(self.balancer.on_engine_report(url, hung=hung))

    @precondition(lambda self: any(client.woken for client in self.clients))
    @rule(data=st.data())
    def a_released_request_is_routed(self, data: st.DataObject) -> None:
        self.route(data.draw(st.sampled_from([each for each in self.clients if each.woken])))

    @rule(seconds=st.sampled_from([0.25, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            due = [each for each in self.clients if each.until is not None and (each.woken or each.until <= end)]
            if not due:
                break
            first = min(due, key=lambda each: (self.now if each.woken else each.until or 0.0, each.number))
            assert first.until is not None
            self.now = self.now if first.woken else max(self.now, first.until)
            self.route(first)
        self.now = end

    @invariant()
    def each_place_counts_an_attempt_or_a_held_request(self) -> None:
        for url in URLS:
            attempts = sum(each.attempts.count(url) for each in self.clients)
            reserved = sum(each.request.reserved == url for each in self.clients)
            assert self.balancer.in_flight[url] == attempts + reserved

    @invariant()
    def nothing_waits_while_a_place_is_free(self) -> None:
        for client in self.clients:
            waits = client.until is not None and not client.woken and client.request.reserved is None
            if waits and not client.request.tried:  # a retry avoids the replicas that it was sent to, for a moment
                assert not [url for url in self.usable(client) if self.balancer.in_flight[url] < self.bound]

    def teardown(self) -> None:
        """With replicas whose attempts end, each request gets its turn."""
        self.hung.clear()
        for url in URLS:
            self.wake(self.balancer.on_engine_report(url, hung=False))
        self.publish(1, URLS)
        self.time_passes(2 * EJECTION_SECONDS)
        while self.clients:
            self.end(next(each for each in self.clients if each.attempts))
            self.time_passes(0.0)
        assert not self.balancer.in_flight

    def usable(self, client: Client) -> list[str]:
        ready = [url for url in self.ready if url not in self.hung and self.ejected.get(url, 0.0) <= self.now]
        return [url for url in ready if client.request.name != "new" or url != ROLLING]

    def publish(self, bound: int, ready: object, spare: int = 0) -> None:
        self.bound, self.spare, self.ready = bound, spare, list(ready)  # type: ignore[call-overload]
        replicas = [
            Replica(name=url, url=url, ready=url in self.ready, unserved_names=("new",) * (url == ROLLING))
            for url in URLS
        ]
        row = ModelRoute(
            fleet="uid", replicas=replicas, max_in_flight=5, in_flight_parts={"this": bound, "other": 5 - bound},
            hold_timeout_seconds=HOLD_SECONDS, spare_in_flight=spare,
        )  # fmt: skip
        self.wake(self.balancer.on_table(RoutingTable(models={"m": row})))

    def wake(self, released: list[RoutedRequest]) -> None:
        for request in released:
            client = next(each for each in self.clients if each.request is request)
            client.woken = client.until is not None
            if request.reserved != client.reserved:
                client.reserved = request.reserved
                if request.reserved is not None:
                    self.check_order(client, request.reserved)

    def route(self, client: Client) -> None:
        client.woken = False
        tried = set() if client.until is not None else set(client.request.tried)
        before, reserved = dict(self.balancer.in_flight), client.request.reserved
        decision = self.balancer.route(client.request, self.balancer.table.models["m"], self.now)
        client.reserved = None
        if isinstance(decision, Send):
            url = decision.replica.url
            assert url in set(self.usable(client)) - tried
            others = before.get(url, 0) - (reserved == url)
            assert others < self.bound + self.spare
            if others >= self.bound and reserved is None:
                self.check_small_part(client)
            if reserved is None:
                self.check_order(client, url)
            client.until = None
            client.attempts.append(url)
        elif isinstance(decision, Queue):
            assert self.now < decision.until
            client.until = decision.until
        else:
            slow = isinstance(decision, Reject) and decision.cause is RejectionCause.FULL
            assert slow or not isinstance(decision, Reject) or client.until is not None
            self.end(client)
        self.wake(self.balancer.pop_released())

    def check_small_part(self, client: Client) -> None:
        """Beyond the bound only a sender gets a place that has less than an equal part."""
        held = dict.fromkeys((each.request.sender for each in self.clients), 0)
        for each in self.clients:
            held[each.request.sender] += len(each.attempts) + (each.request.reserved is not None)
        assert held[client.request.sender] * len(held) < sum(held.values())

    def check_order(self, client: Client, url: str) -> None:
        """None that comes before ``client`` and could go to ``url`` is left waiting."""
        for each in self.clients:
            waits = each.until is not None and each.request.reserved is None and each is not client
            if not waits or url not in self.usable(each):
                continue
            one, other = client.request, each.request
            assert one.turn.priority <= other.turn.priority, "a lower class overtook"
            if (one.turn.priority, one.sender) == (other.turn.priority, other.sender):
                assert client.number < each.number, "a later one overtook"

    def end(self, client: Client) -> None:
        self.clients.remove(client)
        self.wake(self.balancer.on_disconnect(client.request))


def test_random_events_keep_the_bound_and_leave_no_place_idle() -> None:
    machine = Driver.TestCase()
    machine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
    machine.runTest()


@pytest.mark.parametrize(
    ("parts", "gateway", "most"),
    [({}, "new", 5), ({"a": 3, "b": 2}, "a", 3), ({"a": 3, "b": 2}, "new", 1), ({"a": 5}, "a", 5)],
)
def test_a_gateway_takes_its_part_of_the_bound(parts: dict[str, int], gateway: str, most: int) -> None:
    row = ModelRoute(max_in_flight=5, in_flight_parts=parts)
    assert row.most_in_flight(gateway) == most
    assert ModelRoute(in_flight_parts=parts).most_in_flight(gateway) is None


def test_more_than_may_wait_are_rejected_with_what_they_waited_for() -> None:
    balancer, replica = Balancer(), Replica(name="a", url="http://a", ready=True)
    row = ModelRoute(max_in_flight=1, max_held=1, replicas=[replica], hold_timeout_seconds=3)
    balancer.on_table(RoutingTable(models={"m": row}))
    first, second, third = (balancer.open_request("m", "", 0.0, sender="a") for _ in range(3))
    assert isinstance(balancer.route(first, row, 0.0), Send)
    assert isinstance(balancer.route(second, row, 0.0), Queue)
    rejected = balancer.route(third, row, 0.0)
    assert isinstance(rejected, Reject)
    assert rejected.reason == "No replica of `m` has a free place, and 1 requests already wait for one."
    assert rejected.cause is RejectionCause.FULL
    late = balancer.route(second, row, 3.0)
    assert isinstance(late, Reject)
    assert late.reason == "No replica of `m` had a free place within 3 s."
    assert late.cause is RejectionCause.FULL
    assert balancer.count_held("m") == 0
