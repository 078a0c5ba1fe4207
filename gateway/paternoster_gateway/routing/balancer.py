"""The state machine that decides what happens to each request: sent, held, rejected, retried."""

import math
from collections import Counter
from collections.abc import Collection

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.routing.decisions import (
    EJECTING,
    RETRY_AFTER,
    Decision,
    Queue,
    Reject,
    Result,
    Retry,
    ReturnResult,
    RoutedRequest,
    Send,
)
from paternoster_gateway.routing.held_requests import HeldRequests, Place
from paternoster_gateway.routing.least_loaded import ReadyReplicas
from paternoster_gateway.routing.limits import CHECK_SECONDS, EJECTION_SECONDS, MAX_ATTEMPTS
from paternoster_gateway.routing.rejected_demand import RejectedDemand
from paternoster_gateway.routing.replica_states import ReplicaStates
from paternoster_gateway.routing.retry_budget import RetryBudgets


class Balancer:
    """Decides from events alone; ``now`` is in seconds of any clock that never goes back.

    A driver opens a request, routes it, and does what the decision states: after :class:`Send` it reports the result
    and the end of the attempt, and routes the request again where ``retry`` is not ``NONE``; after :class:`Queue` it
    routes the request again at ``until``, or when :meth:`on_table` releases it. At the end of each request without an
    answer, and when its client leaves, it calls :meth:`on_disconnect`.
    """

    def __init__(self) -> None:
        self.table = RoutingTable()
        self.in_flight: Counter[str] = Counter()
        """Attempts that have not ended, by replica URL."""
        self._states = ReplicaStates()
        self._held = HeldRequests()
        self._rejected = RejectedDemand()
        self._budgets = RetryBudgets()
        self._ready: dict[str, ReadyReplicas] = {}
        """By model, of the row that was routed by last."""
        self._turn = 0

    def held(self, model: str) -> int:
        """Requests that wait for a replica of the fleet that has the name ``model`` now."""
        return self._held.count(self._place_now(model))

    def rejected(self, model: str, now: float) -> int:
        """Rejected requests of that fleet that may not come again yet: until then they are demand."""
        return self._rejected.count(self._place_now(model), now)

    def open_request(self, model: str, fleet: str, now: float, *, name: str = "", sender: str = "") -> RoutedRequest:
        """A client's request, which allows its fleet a part of a retry."""
        budget = self._budgets.of(model, fleet)
        budget.count_request(now)
        return RoutedRequest(model, fleet, name, sender, budget)

    def route(self, request: RoutedRequest, row: ModelRoute, now: float) -> Decision:
        """What to do with a request that is new, held, or may be retried.

        ``row``: the one of :attr:`table` that admits the request now; the driver raises where none does.
        """
        if request.rejection is not None:
            return request.rejection
        ready = self._ready_replicas(request.model, row)
        unserved = ready.without_name(request.name)
        if request.retry is not Retry.NONE:
            decision = self._begin_retry(request, ready, unserved, now)
            if decision is not None:
                return decision
        tried = request.tried if request.hold_until is None else ()
        replica = self._pick_preferred(ready, {*tried, *unserved}, now)
        if replica is not None:
            return self._send(request, replica)
        if not row.hold and ready.pick(avoid={*unserved, *self._states.hung}) is None:
            return self._reject(request, row, now)
        return self._hold(request, row, EJECTION_SECONDS if len(ready) else CHECK_SECONDS, now)

    def on_result(self, request: RoutedRequest, url: str, result: Result, now: float) -> None:
        """Record what came of the attempt at ``url``; ``request.retry`` is what it allows."""
        if result in EJECTING:
            self._states.eject(url, now)
        elif result is Result.FULL:
            self._states.mark_full(url, now)
        exhausted = request.is_last_attempt or len(request.tried) >= MAX_ATTEMPTS
        request.retry = Retry.NONE if exhausted else RETRY_AFTER[result]

    def begin_continuation(self, request: RoutedRequest) -> None:
        """Route a request anew whose answer its last replica broke off; any other replica may go on with it."""
        request.tried = request.tried[-1:]
        self.begin_attempt(request)

    def begin_attempt(self, request: RoutedRequest) -> None:
        """Route a request anew, whatever came of the last attempt; a replica that has tried is the last choice."""
        request.retry, request.is_last_attempt, request.hold_until = Retry.NONE, False, None

    def on_attempt_end(self, request: RoutedRequest, url: str) -> None:
        """Count the attempt at ``url`` no longer: its answer has ended, or is not wanted; once is enough."""
        if url in request.in_flight:
            request.in_flight.remove(url)
            self._count_attempt(url, -1)

    def on_disconnect(self, request: RoutedRequest) -> None:
        """Forget a request that gets no answer any more; it may have ended already."""
        self._held.remove(request)
        for url in list(request.in_flight):
            self.on_attempt_end(request, url)

    def on_table(self, table: RoutingTable) -> list[RoutedRequest]:
        """Route by ``table`` from now on; returns held requests to route again, first come first served."""
        self.table = table
        self._ready = {model: ready for model, ready in self._ready.items() if model in table.models}
        self._budgets.retain_only({(model, row.fleet) for model, row in table.models.items()})
        for place in self._rejected.places():
            if self._is_served_or_gone(place):
                self._rejected.remove(place)
        return [
            request
            for place in self._held.places()
            if self._is_served_or_gone(place)
            for request in self._held.of(place)
        ]

    def on_engine_report(self, url: str, *, hung: bool) -> None:
        """The replica at ``url`` answers no probe, or answers them again."""
        self._states.set_hung(url, hung)

    def _begin_retry(
        self, request: RoutedRequest, ready: ReadyReplicas, unserved: Collection[str], now: float
    ) -> Decision | None:
        """Charge the budget for a retry; None where the request is routed as a new one is, and may be held."""
        retry, request.retry = request.retry, Retry.NONE
        replica = None
        if retry is not Retry.ANY:
            replica = self._pick(ready, {*request.tried, *unserved, *self._states.full(now)}, now)
            if replica is None:
                return ReturnResult()
        if not request.budget.withdraw(now):
            return ReturnResult(budget_exhausted=True)
        request.is_last_attempt = retry is Retry.ONE_NOW
        return None if replica is None else self._send(request, replica)

    def _pick_preferred(self, ready: ReadyReplicas, avoid: Collection[str], now: float) -> Replica | None:
        """A replica that refused no request as full a moment ago, where there is one."""
        full = self._states.full(now)
        spare = self._pick(ready, {*avoid, *full}, now) if full else None
        return spare or self._pick(ready, avoid, now)

    def _pick(self, ready: ReadyReplicas, avoid: Collection[str], now: float) -> Replica | None:
        self._turn += 1
        ejected, hung = self._states.ejected(now), self._states.hung
        return ready.pick(avoid={*avoid, *ejected, *hung} if ejected or hung else avoid, turn=self._turn)

    def _send(self, request: RoutedRequest, replica: Replica) -> Send:
        self._held.remove(request)
        request.hold_until = None
        request.tried.append(replica.url)
        request.in_flight.append(replica.url)
        self._count_attempt(replica.url, 1)
        return Send(replica)

    def _reject(self, request: RoutedRequest, row: ModelRoute, now: float) -> Reject:
        """Reject a request whose fleet holds none, and count it as demand until it may come again."""
        self._held.remove(request)
        self._rejected.add((request.model, request.fleet), now + row.retry_after_seconds, row.max_held)
        return Reject(
            f"No replica of `{request.name or request.model}` is ready; one is being started.",
            math.ceil(row.retry_after_seconds),
        )

    def _hold(self, request: RoutedRequest, row: ModelRoute, check_seconds: float, now: float) -> Queue | Reject:
        if request.hold_until is None:
            request.hold_until = now + row.hold_timeout_seconds
        if request.hold_until <= now:
            self._held.remove(request)
            model = request.name or request.model
            return Reject(f"No replica of `{model}` became ready within {row.hold_timeout_seconds:g} s.")
        evicted = None
        if (others := self._held.beside(request)) >= row.max_held:
            full = Reject(f"No replica of `{request.model}` is ready, and {others} requests already wait for one.")
            evicted = self._held.find_evicted(request)
            if evicted is None:
                self._held.remove(request)
                return full
            self._held.remove(evicted)
            evicted.rejection = full
        self._held.add(request)
        return Queue(min(request.hold_until, now + check_seconds), evicted)

    def _is_served_or_gone(self, place: Place) -> bool:
        model, fleet = place
        row = self.table.models.get(model)
        return row is None or row.fleet != fleet or any(replica.ready for replica in row.replicas)

    def _place_now(self, model: str) -> Place:
        row = self.table.models.get(model)
        return model, row.fleet if row else ""

    def _ready_replicas(self, model: str, row: ModelRoute) -> ReadyReplicas:
        ready = self._ready.get(model)
        if ready is None or ready.route is not row:
            ready = self._ready[model] = ReadyReplicas(row, self.in_flight)
        return ready

    def _count_attempt(self, url: str, difference: int) -> None:
        self.in_flight[url] += difference
        if not self.in_flight[url]:
            del self.in_flight[url]
        for ready in self._ready.values():
            ready.add_in_flight(url, difference)
