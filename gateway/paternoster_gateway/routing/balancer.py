"""The state machine that decides what happens to each request: sent, held, rejected, retried."""

import math
from collections import Counter, deque
from collections.abc import Collection

from paternoster_contract.access.identity import Lane
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
    Turn,
)
from paternoster_gateway.routing.held_requests import HeldRequests, Place
from paternoster_gateway.routing.least_loaded import ReadyReplicas
from paternoster_gateway.routing.limits import CHECK_SECONDS, EJECTION_SECONDS, MAX_ATTEMPTS
from paternoster_gateway.routing.prefix_routing import MAX_TOKENS_PER_BYTE, PrefixRouting, PromptChain, PromptTokens
from paternoster_gateway.routing.queue_limits import hold_request
from paternoster_gateway.routing.replica_picker import ReplicaPicker
from paternoster_gateway.routing.retry_budget import RetryBudgets

MAX_REJECTED = 10_000
"""Rejected requests of a fleet that are counted."""


class RejectedDemand:
    """Seconds at which rejected requests of a fleet that starts may come again: until then they are demand."""

    def __init__(self) -> None:
        self._again: dict[Place, deque[float]] = {}

    def add(self, place: Place, again: float, most: int) -> None:
        """Count one request until ``again``, and at most ``most`` of its fleet."""
        self._again.setdefault(place, deque(maxlen=max(1, min(most, MAX_REJECTED)))).append(again)

    def count(self, place: Place, now: float) -> int:
        again = self._again.get(place, deque())
        while again and again[0] <= now:
            again.popleft()
        return len(again)

    def list_places(self) -> list[Place]:
        return list(self._again)

    def remove(self, place: Place) -> None:
        """The fleet serves or is gone: what comes again is counted then."""
        del self._again[place]


class Balancer:
    """Decides from events alone; ``now`` is in seconds of any clock that never goes back.

    A driver opens a request, routes it, does what the decision states, and routes :meth:`pop_released`: after
    :class:`Send` it reports the result and the end of the attempt, and routes the request again where ``retry`` is not
    ``NONE``; after :class:`Queue` it does at ``until``. At the end of each request without an answer, and when its
    client leaves, it calls :meth:`on_disconnect`. Events return held requests to route again at once, in order.
    Where a row bounds the requests in flight at a replica, a request beyond it is held, and the place of an attempt
    that ends is reserved for the first request of the queue that the replica serves: a later one does not overtake it.
    Where a row has spare places, a sender with less than an equal part of what is in flight may get one beyond it.
    """

    def __init__(self, gateway: str = "", prefixes: PrefixRouting | None = None) -> None:
        """``gateway``: its instance, by which rows name its part of a bound; ``prefixes``: how prompts are routed."""
        self.table = RoutingTable()
        self.prefixes = PrefixRouting(gateway) if prefixes is None else prefixes
        self._picker = ReplicaPicker(gateway, self.prefixes)
        self._states = self._picker.states
        self._held = HeldRequests()
        self._rejected = RejectedDemand()
        self._budgets = RetryBudgets()
        self.handing_over: frozenset[str] = frozenset()
        """URLs of draining replicas whose streams are to go on at others."""
        self._released, self._arrivals = list[RoutedRequest](), 0
        self._now = 0.0
        """The latest that was seen."""

    @property
    def in_flight(self) -> Counter[str]:
        """Attempts that have not ended, and places reserved for held requests, by replica URL."""
        return self._picker.in_flight

    def count_held(self, model: str) -> int:
        """Requests that wait for a replica of the fleet that has the name ``model`` now."""
        return self._held.count(self._place_now(model))

    def list_waiting(self) -> list[Place]:
        """Fleets with requests that wait for a replica, or that were rejected for want of one."""
        return [*{*self._held.list_places(), *self._rejected.list_places()}]

    def count_rejected(self, model: str, now: float) -> int:
        """Rejected requests of that fleet that may not come again yet: until then they are demand."""
        return self._rejected.count(self._place_now(model), now)

    def open_request(
        self,
        model: str,
        fleet: str,
        now: float,
        *,
        name: str = "",
        sender: str = "",
        prompt: PromptChain | None = None,
        turn: Turn | None = None,
    ) -> RoutedRequest:
        """A client's request, which allows its fleet a part of a retry; ``prompt``: its text."""
        budget, turn = self._budgets.get_budget(model, fleet), turn or Turn()
        budget.count_request(now)
        self._arrivals += 1
        return RoutedRequest(
            model, fleet, name, sender, budget, self._arrivals, turn, turn.deadline_at(now), prompt=prompt
        )

    def route(self, request: RoutedRequest, row: ModelRoute, now: float) -> Decision:
        """What to do with a request that is new, held, or may be retried.

        ``row``: the one of :attr:`table` that admits the request now; the driver raises where none does.
        """
        if request.rejection is not None:
            return request.rejection
        self._now = now
        ready = self._picker.find_ready(request.model, row)
        unserved = self._picker.find_unserving(request, ready)
        if request.retry is not Retry.NONE:
            decision = self._begin_retry(request, ready, unserved, now)
            if decision is not None:
                return decision
        if self._picker.find_bound(row) is not None:
            reserved = self._reserve_places(request.model, row, now)
            self._released += [each for each in reserved if each is not request]
        tried = request.tried if request.hold_until is None else ()
        spare = row.spare_in_flight
        if spare and not self._held.queue_of(request).may_exceed_bound(request):
            spare = 0
        replica = self._take_reserved(request, ready, now) or self._picker.pick_preferred(
            request, ready, {*tried, *unserved}, now, spare
        )
        if replica is not None:
            return self._send(request, replica, now)
        if ready.lack_name(request.name) and row.find_adapter(request.name) is not None:
            # Other than a replica that starts it may never come: its files may be broken.
            self._held.remove(request)
            reason = f"No replica of `{request.model}` has loaded the adapter `{request.name}`."
            return Reject(reason, math.ceil(row.retry_after_seconds))
        if request.turn.lane is not Lane.ONLINE:
            reason = f"No replica of `{request.name or request.model}` has a place for this line of a batch."
            return Reject(reason, math.ceil(row.retry_after_seconds))
        holds = row.hold and request.subset is None
        if not holds and ready.pick(avoid={*unserved, *self._states.hung}) is None:
            return self._reject(request, row, now)
        return self._hold_request(request, ready, now)

    def pop_released(self) -> list[RoutedRequest]:
        """Held requests before the one that was routed last, which have got a place: route them again, too."""
        released, self._released = self._released, []
        return released

    def on_result(
        self,
        request: RoutedRequest,
        url: str,
        result: Result,
        now: float,
        *,
        served: bool = True,
        tokens: PromptTokens | None = None,
    ) -> list[RoutedRequest]:
        """Record what came of the attempt at ``url``, once it is known; ``request.retry`` is what it allows.

        ``served``: the answer is none that the replica gives without computing a prompt. ``tokens``: what it reports
        of the prompt.
        """
        self._now = now
        if tokens is not None and tokens.prompt <= MAX_TOKENS_PER_BYTE * request.turn.size:
            self._held.queue_of(request).correct_prompt(request, tokens.prompt)
        if (sent := request.sent.pop(url, None)) is not None:
            computed = served and result is Result.ANSWERED
            if tokens is not None:
                tokens = self.prefixes.on_prompt_tokens(request.model, url, sent, tokens)
            self.prefixes.on_first_byte(request.model, sent, url, now, served=computed, tokens=tokens)
        if result in EJECTING:
            self._states.eject(url, now)
            self.prefixes.forget_sent(url)
        elif result is Result.FULL and request.turn.lane is Lane.ONLINE:
            self._states.mark_full(url, now)
        retry = RETRY_AFTER[result]
        exhausted = len(request.tried) >= MAX_ATTEMPTS or (request.is_last_attempt and retry is Retry.ONE_NOW)
        request.retry = Retry.NONE if exhausted else retry
        place = request.model, request.fleet  # those that wait look again when the replica is not ejected
        return (
            list(self._held.iterate_held(place)) if result in EJECTING and self._bounded_row(place) is not None else []
        )

    def on_output(self, request: RoutedRequest, tokens: int) -> None:
        """The client gets ``tokens`` more of its answer, which its sender is charged."""
        self._held.queue_of(request).count_output(request, tokens)

    def list_fallbacks(self, request: RoutedRequest, row: ModelRoute, now: float) -> list[Replica]:
        """Replicas that a proxy may send ``request`` to where those that it was sent to do not answer, best first.

        The least loaded come first. No decision about a later request depends on the call.
        """
        ready, fallbacks = self._picker.find_ready(request.model, row), list[Replica]()
        avoid = {*request.tried, *self._picker.find_unserving(request, ready), *self._picker.find_avoided(now)}
        avoid.update(self._states.find_full(now))
        while len(fallbacks) < MAX_ATTEMPTS - 1:
            replica = ready.pick(avoid=avoid, turn=request.arrival)
            if replica is None or not self._picker.has_place(row, replica.url):
                break
            fallbacks.append(replica)
            avoid.add(replica.url)
        return fallbacks

    def begin_fallback(self, request: RoutedRequest, url: str) -> None:
        """A proxy has sent ``request`` to ``url``, in the place of the replica that it was to go to."""
        request.tried.append(url)
        self._begin_attempt(request, url)

    def begin_continuation(self, request: RoutedRequest, url: str) -> None:
        """Route a request anew whose answer the replica at ``url`` broke off; any other replica may go on with it."""
        request.tried = [url]
        self.route_anew(request)

    def route_hand_over(self, request: RoutedRequest, row: ModelRoute, now: float) -> Send | None:
        """A replica that may go on with a stream of a draining one; None where none can now, or ``row`` forbids it.

        It has a free place, and did not fail to go on with the stream before. The present attempt does not end by it.
        """
        if not row.hand_over:
            return None
        self._now = now
        ready = self._picker.find_ready(request.model, row)
        avoid = {*request.tried, *self._picker.find_unserving(request, ready)}
        replica = self._picker.pick_preferred(request, ready, avoid, now)
        return None if replica is None else self._send(request, replica, now)

    def on_hand_over(self, request: RoutedRequest, url: str) -> None:
        """The stream goes on at ``url``: other replicas that were tried may get it again later."""
        request.tried = [url]

    def cancel_hand_over(self, request: RoutedRequest, url: str, *, again: bool) -> None:
        """The request stays where it is; ``again``: the replica at ``url`` may be chosen for it later."""
        if again and url in request.tried:
            request.tried.remove(url)

    def route_anew(self, request: RoutedRequest) -> None:
        """Route a request as a new one, whatever came of the last attempt; tried replicas are the last choice."""
        request.retry, request.is_last_attempt, request.hold_until = Retry.NONE, False, None

    def on_attempt_end(self, request: RoutedRequest, url: str) -> list[RoutedRequest]:
        """Count the attempt at ``url`` no longer: its answer has ended, or is not wanted; once is enough."""
        if url not in request.in_flight:
            return []
        self._end_attempt(request, url)
        return self._release(self._place_now(request.model))

    def on_disconnect(self, request: RoutedRequest) -> list[RoutedRequest]:
        """Forget a request that gets no answer any more; it may have ended already."""
        self._held.remove(request)
        request.reserved = None
        if not request.tried:
            self._held.queue_of(request).correct_prompt(request, 0)
        if not request.in_flight:
            return []
        for url in list(request.in_flight):
            self._end_attempt(request, url)
        return self._release(self._place_now(request.model))

    def on_table(self, table: RoutingTable) -> list[RoutedRequest]:
        """Route by ``table`` from now on."""
        self.table = table
        self._picker.retain_only(table.models)
        self.handing_over = frozenset(
            replica.url
            for row in table.models.values()
            if row.hand_over
            for replica in row.replicas
            if replica.draining
        )
        replicas = [replica for row in table.models.values() for replica in row.replicas]
        namespaces = {each.url: row.namespace for row in table.models.values() for each in row.replicas}
        self.prefixes.retain_only(table.models, namespaces, {each.url for each in replicas if each.ready})
        places = {(model, row.fleet) for model, row in table.models.items()}
        self._budgets.retain_only(places)
        self._held.retain_only(places)
        for place in self._rejected.list_places():
            if self._is_served_or_gone(place):
                self._rejected.remove(place)
        return [
            request
            for place in self._held.list_places()
            if self._is_served_or_gone(place)
            for request in (
                self._held.iterate_held(place) if self._bounded_row(place) is None else self._release(place)
            )
        ]

    def on_engine_report(self, url: str, *, hung: bool) -> list[RoutedRequest]:
        """The replica at ``url`` answers no probe, or answers them again."""
        self._states.set_hung(url, hung)
        if hung:
            return []
        return [request for place in self._held.list_places() for request in self._release(place)]

    def _release(self, place: Place) -> list[RoutedRequest]:
        """Held requests that a place is reserved for now; none where the row has no bound."""
        return [] if (row := self._bounded_row(place)) is None else self._reserve_places(place[0], row, self._now)

    def _reserve_places(self, model: str, row: ModelRoute, now: float) -> list[RoutedRequest]:
        """Reserve free places for held requests, the first of the queue first; returns those that have got one."""
        ready, reserved = self._picker.find_ready(model, row), list[RoutedRequest]()
        if not self._held.count((model, row.fleet)) or self._picker.pick_by_load(ready, (), now) is None:
            return reserved
        for request in self._held.iterate_held((model, row.fleet)):
            if request.reserved is not None:
                continue
            unserving = self._picker.find_unserving(request, ready)
            replica = self._picker.pick_preferred(request, ready, unserving, now)
            if replica is not None:
                request.reserved = replica.url
                self._begin_attempt(request, replica.url)
                reserved.append(request)
            elif self._picker.pick_by_load(ready, (), now) is None:
                break
        return reserved

    def _take_reserved(self, request: RoutedRequest, ready: ReadyReplicas, now: float) -> Replica | None:
        """The replica with a place for ``request``, which it has no longer; None where it may get nothing now."""
        url, request.reserved = request.reserved, None
        if url is None:
            return None
        self._end_attempt(request, url)
        if (
            url in self._states.find_ejected(now)
            or url in self._states.hung
            or not self._picker.has_place(ready.route, url, ready.route.spare_in_flight)
        ):
            return None
        return ready.find(url)

    def _bounded_row(self, place: Place) -> ModelRoute | None:
        """The row of the fleet that has the name now, where it has a bound."""
        row = self.table.models.get(place[0])
        return None if row is None or row.fleet != place[1] or self._picker.find_bound(row) is None else row

    def _begin_retry(
        self, request: RoutedRequest, ready: ReadyReplicas, unserved: Collection[str], now: float
    ) -> Decision | None:
        """Charge the budget for a retry; None where the request is routed as a new one is, and may be held."""
        retry, request.retry = request.retry, Retry.NONE
        replica = None
        if retry is not Retry.ANY:
            replica = self._picker.pick(request, ready, {*request.tried, *unserved, *self._states.find_full(now)}, now)
            if replica is None:
                return ReturnResult()
        if not request.budget.withdraw_retry(now):
            return ReturnResult(budget_exhausted=True)
        request.is_last_attempt = retry is Retry.ONE_NOW
        return None if replica is None else self._send(request, replica, now)

    def _send(self, request: RoutedRequest, replica: Replica, now: float) -> Send:
        self._held.on_send(request, now)
        request.hold_until = None
        request.tried.append(replica.url)
        if request.pick is not None and request.prompt is not None:
            request.sent[replica.url] = self.prefixes.send(
                request.model, request.prompt, request.pick, replica.url, self.in_flight[replica.url], now
            )
        self._begin_attempt(request, replica.url)
        return Send(replica)

    def _reject(self, request: RoutedRequest, row: ModelRoute, now: float) -> Reject:
        """Reject a request whose fleet holds none, and count it as demand until it may come again."""
        self._held.remove(request)
        self._rejected.add((request.model, request.fleet), now + row.retry_after_seconds, row.max_held)
        return Reject(
            f"No replica of `{request.name or request.model}` is ready; one is being started.",
            math.ceil(row.retry_after_seconds),
        )

    def _hold_request(self, request: RoutedRequest, ready: ReadyReplicas, now: float) -> Queue | Reject:
        rejection, evicted = hold_request(self._held, request, ready.route, now, full=self._is_full(ready, now))
        if rejection is not None:
            return rejection
        assert request.hold_until is not None
        again = now + (EJECTION_SECONDS if len(ready) else CHECK_SECONDS)
        if self._picker.find_bound(ready.route) is not None and not request.tried:
            # All but the end of an ejection is an event, which releases the request. One that was tried may come back
            # to the same replica, where it avoided a free place a moment ago.
            again = min(now + CHECK_SECONDS, self._states.next_return(now))
        return Queue(min(request.hold_until, again), evicted)

    def _is_full(self, ready: ReadyReplicas, now: float) -> bool:
        """Whether replicas could serve, had they a place."""
        return (
            self._picker.find_bound(ready.route) is not None
            and ready.pick(avoid=self._picker.find_avoided(now)) is not None
        )

    def _is_served_or_gone(self, place: Place) -> bool:
        row = self.table.models.get(place[0])
        return row is None or row.fleet != place[1] or any(replica.ready for replica in row.replicas)

    def _place_now(self, model: str) -> Place:
        return model, self.table.models[model].fleet if model in self.table.models else ""

    def _begin_attempt(self, request: RoutedRequest, url: str) -> None:
        tokens = self.prefixes.tokens_per_byte(request.model) * request.text_size
        self._held.queue_of(request).begin_attempt(request, tokens)
        request.in_flight.append(url)
        self._picker.count_place(url, 1)

    def _end_attempt(self, request: RoutedRequest, url: str) -> None:
        if (sent := request.sent.pop(url, None)) is not None:
            self.prefixes.on_first_byte(request.model, sent, url, sent.at, served=False)
        request.in_flight.remove(url)
        self._held.queue_of(request).end_attempt(request)
        self._picker.count_place(url, -1)
