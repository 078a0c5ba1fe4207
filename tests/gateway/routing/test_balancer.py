"""Random events against the balancer: what holds after each of them, and that each request ends."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.routing import retry_budget
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import EJECTING, Queue, Reject, Result, Retry, RoutedRequest, Send
from paternoster_gateway.routing.limits import EJECTION_SECONDS, MAX_ATTEMPTS

FLEETS = {"m": "uid-m", "n": "uid-n"}
URLS = {model: [f"http://{model}{number}" for number in range(3)] for model in FLEETS}
MAX_HELD = 4
HOLD_SECONDS = 15.0
RESERVE = 1
"""Retries of a fleet that need no requests: fewer than in the product, so that the budget is used up."""


@dataclass(eq=False)
class Client:
    """A request as the driver sees it."""

    request: RoutedRequest
    until: float | None = None
    """While it is held: when it is routed again."""
    first_held: int = 0
    attempts: list[str] = field(default_factory=list)
    """URLs of attempts that have not ended."""
    may_be_retried: bool = False


class Driver(RuleBasedStateMachine):
    """Does what decisions state, and counts for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.balancer = Balancer()
        self.now = 1000.0
        self.clients: list[Client] = []
        self.ejected: dict[str, float] = {}
        self.hung: set[str] = set()
        self.retries: dict[str, list[float]] = {model: [] for model in FLEETS}
        self.requests: dict[str, list[float]] = {model: [] for model in FLEETS}
        self.serial = 0
        self.publish({"m": set(URLS["m"]), "n": set()}, True)

    @rule(model=st.sampled_from(sorted(FLEETS)), sender=st.sampled_from("ab"), name=st.sampled_from(["", "new"]))
    def a_request_arrives(self, model: str, sender: str, name: str) -> None:
        request = self.balancer.open_request(model, FLEETS[model], self.now, name=name, sender=sender)
        self.requests[model].append(self.now)
        self.route(Client(request))

    @rule(data=st.data(), hold=st.booleans())
    def the_table_changes(self, data: st.DataObject, hold: bool) -> None:
        ready = st.sampled_from([0, 0, 1, 3])
        self.publish({model: set(URLS[model][: data.draw(ready)]) for model in FLEETS}, hold)

    @precondition(lambda self: any(client.attempts for client in self.clients))
    @rule(data=st.data(), result=st.sampled_from([*Result, Result.UNREACHABLE, Result.UNREACHABLE]))
    def an_attempt_has_a_result(self, data: st.DataObject, result: Result) -> None:
        client = data.draw(st.sampled_from([each for each in self.clients if each.attempts]))
        url = client.attempts[-1]
        self.balancer.on_result(client.request, url, result, self.now)
        if result in EJECTING:
            self.ejected[url] = self.now + EJECTION_SECONDS
        if client.request.retry is Retry.NONE:
            self.end(client)
            return
        client.may_be_retried = True
        self.route(client)
        if url in client.attempts:
            client.attempts.remove(url)
            self.balancer.on_attempt_end(client.request, url)

    @precondition(lambda self: len(self.clients) > 3)
    @rule(data=st.data())
    def a_client_leaves(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.clients)))

    @rule(url=st.sampled_from([url for urls in URLS.values() for url in urls]), hung=st.booleans())
    def a_probe_reports(self, url: str, hung: bool) -> None:
        self.balancer.on_engine_report(url, hung=hung)
        (self.hung.add if hung else self.hung.discard)(url)

    @rule(seconds=st.sampled_from([0.25, 1.0, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self.held() if each.until is not None and each.until <= end]:
            first = min(due, key=lambda each: each.until or 0.0)
            assert first.until is not None
            self.now = max(self.now, first.until)
            self.route(first)
        self.now = end

    @invariant()
    def attempts_are_counted(self) -> None:
        assert self.balancer.in_flight == Counter(url for each in self.clients for url in each.attempts)
        assert all(count > 0 for count in self.balancer.in_flight.values())

    @invariant()
    def held_requests_are_counted_and_bounded(self) -> None:
        for model in FLEETS:
            held = [each for each in self.held() if each.request.model == model]
            assert self.balancer.count_held(model) == len(held) <= MAX_HELD

    def teardown(self) -> None:
        """Without replicas each held request is rejected by its deadline; then nothing is left."""
        self.publish({model: set() for model in FLEETS}, True)
        self.time_passes(HOLD_SECONDS)
        assert list(self.held()) == []
        for client in list(self.clients):
            self.end(client)
        assert not self.balancer.in_flight
        assert [self.balancer.count_held(model) for model in FLEETS] == [0, 0]

    def held(self) -> Iterator[Client]:
        return (each for each in self.clients if each.until is not None)

    def publish(self, ready: dict[str, set[str]], hold: bool) -> None:
        def row(model: str) -> ModelRoute:
            replicas = [
                Replica(name=url, url=url, ready=url in ready[model], unserved_names=("new",) if url[-1] == "0" else ())
                for url in URLS[model]
            ]
            return ModelRoute(
                fleet=FLEETS[model], replicas=replicas, hold=hold, max_held=MAX_HELD, hold_timeout_seconds=HOLD_SECONDS
            )

        self.ready = ready
        released = self.balancer.on_table(RoutingTable(models={model: row(model) for model in FLEETS}))
        for model in FLEETS:
            held = [each for each in self.held() if each.request.model == model]
            # No sender was charged anything: the one with the fewest attempts is first, then they are as they came.
            attempts = Counter(
                each.request.sender for each in self.clients if each.request.model == model for _ in each.attempts
            )
            in_order = sorted((each.request for each in held), key=lambda each: (attempts[each.sender], each.arrival))
            assert [each for each in released if each.model == model] == (in_order if ready[model] else [])
        for request in released:
            client = self.client_of(request)
            if client.until is not None:
                self.route(client)

    def route(self, client: Client) -> None:
        request, was_held = client.request, client.until is not None
        tried = set() if was_held else set(request.tried)
        if client not in self.clients:
            self.clients.append(client)
        evicted = request.rejection is not None
        decision = self.balancer.route(request, self.balancer.table.models[request.model], self.now)
        self.charge(client, decision)
        usable = {url for url in self.ready[request.model] - self.hung if self.ejected.get(url, 0.0) <= self.now}
        if request.name == "new":
            usable = {url for url in usable if url[-1] != "0"}
        if isinstance(decision, Send):
            assert decision.replica.url in usable - tried
            assert not evicted
            assert len(request.tried) <= MAX_ATTEMPTS
            client.until = None
            client.attempts.append(decision.replica.url)
        elif isinstance(decision, Queue):
            assert not usable - tried, "a replica could have got it"
            if not was_held:
                self.serial += 1
                client.first_held, deadline = self.serial, self.now + HOLD_SECONDS
                assert request.hold_until == deadline
            assert request.hold_until is not None
            assert self.now < decision.until <= request.hold_until
            client.until = decision.until
            if decision.evicted is not None:
                victim = self.client_of(decision.evicted)
                assert victim.until is not None
                assert victim.request.sender != request.sender
                self.route(victim)
                assert victim not in self.clients
        else:
            assert not isinstance(decision, Reject) or evicted or not usable - tried
            self.end(client)

    def charge(self, client: Client, decision: object) -> None:
        """No more retries than the budget of the last seconds allows."""
        model = client.request.model
        retried, client.may_be_retried = client.may_be_retried, False
        if not retried or not isinstance(decision, Send | Queue | Reject):
            return
        self.retries[model].append(self.now)
        oldest = int(self.now) - retry_budget.WINDOW_SECONDS + 1
        requests = sum(int(moment) >= oldest for moment in self.requests[model])
        retries = sum(int(moment) >= oldest for moment in self.retries[model])
        assert retries <= RESERVE + retry_budget.RATIO * requests

    def end(self, client: Client) -> None:
        self.balancer.on_disconnect(client.request)
        client.attempts.clear()
        client.until = None
        self.clients.remove(client)

    def client_of(self, request: RoutedRequest) -> Client:
        return next(each for each in self.clients if each.request is request)


def test_random_events_keep_the_balancers_invariants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_budget, "RESERVE", RESERVE)
    machine = Driver.TestCase()
    machine.settings = settings(max_examples=150, stateful_step_count=80, deadline=None)
    machine.runTest()


def test_a_request_is_sent_to_so_many_replicas_and_to_none_twice() -> None:
    """Also where the first is ejected no longer by the time of the last attempt."""
    balancer = Balancer()
    row = ModelRoute(replicas=[Replica(name=url, url=url, ready=True) for url in "abcdefghij"])
    balancer.on_table(RoutingTable(models={"m": row}))
    request, now = balancer.open_request("m", "", 0.0), 0.0
    for attempt in range(1, MAX_ATTEMPTS + 1):
        now += 2 * EJECTION_SECONDS
        decision = balancer.route(request, row, now)
        assert isinstance(decision, Send)
        balancer.on_result(request, decision.replica.url, Result.UNREACHABLE, now)
        balancer.on_attempt_end(request, decision.replica.url)
        assert (request.retry is Retry.NONE) == (attempt == MAX_ATTEMPTS)
    assert len({*request.tried}) == MAX_ATTEMPTS


def test_a_request_that_one_replica_refuses_outlives_the_death_of_the_other() -> None:
    balancer = Balancer()
    row = ModelRoute(replicas=[Replica(name=url, url=url, ready=True) for url in "abcd"])
    balancer.on_table(RoutingTable(models={"m": row}))
    request = balancer.open_request("m", "", 0.0)
    for result, retry in (
        (Result.FULL, Retry.ONE_NOW), (Result.UNREACHABLE, Retry.ANY), (Result.REFUSED, Retry.ONE_NOW),
        (Result.FULL, Retry.NONE),
    ):  # fmt: skip
        decision = balancer.route(request, row, 0.0)
        assert isinstance(decision, Send)
        balancer.on_result(request, decision.replica.url, result, 0.0)
        balancer.on_attempt_end(request, decision.replica.url)
        assert request.retry is retry
    assert sorted(request.tried) == ["a", "b", "c", "d"]
