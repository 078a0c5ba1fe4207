"""A balancer that records each event and what was decided, and runs such a record in virtual time."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Decision, Queue, Result, RoutedRequest, Send, Turn
from paternoster_gateway.routing.prefix_routing import PromptChain, PromptTokens
from paternoster_simulator.cost import to_seconds, to_ticks
from paternoster_simulator.events import EventQueue, EventRank


@dataclass(frozen=True)
class Event:
    """One call of the balancer."""

    method: str
    now: float
    request: int | None = None
    """Number of the request, in order of arrival."""
    argument: Any = None
    outcome: Any = None


class RecordedBalancer(Balancer):
    """Events in order; what one of them calls itself is part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.requests: list[RoutedRequest] = []
        self._inside = False

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
        request = super().open_request(model, fleet, now, name=name, sender=sender, prompt=prompt, turn=turn)
        self.requests.append(request)
        self.events.append(Event("open_request", now, None, (model, fleet, name, sender, turn)))
        return request

    def route(self, request: RoutedRequest, row: ModelRoute, now: float) -> Decision:
        decision = super().route(request, row, now)
        self.events.append(Event("route", now, self._number(request), row, self._plain(decision)))
        return decision

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
        released = super().on_result(request, url, result, now, served=served, tokens=tokens)
        self.events.append(Event("on_result", now, self._number(request), (url, result), request.retry))
        return released

    def on_attempt_end(self, request: RoutedRequest, url: str) -> list[RoutedRequest]:
        with self._recorded(Event("on_attempt_end", time.monotonic(), self._number(request), url)):
            return super().on_attempt_end(request, url)

    def on_disconnect(self, request: RoutedRequest) -> list[RoutedRequest]:
        with self._recorded(Event("on_disconnect", time.monotonic(), self._number(request))):
            return super().on_disconnect(request)

    def on_table(self, table: RoutingTable) -> list[RoutedRequest]:
        released = super().on_table(table)
        self.events.append(Event("on_table", time.monotonic(), None, table, [self._number(each) for each in released]))
        return released

    def on_engine_report(self, url: str, *, hung: bool) -> list[RoutedRequest]:
        released = super().on_engine_report(url, hung=hung)
        self.events.append(Event("on_engine_report", time.monotonic(), None, (url, hung)))
        return released

    @property
    def decisions(self) -> list[tuple[int | None, Any]]:
        """Each request with what was decided for it; a request that stays held is there once."""
        routed = [(event.request, event.outcome) for event in self.events if event.method == "route"]
        plain = [(number, "Queue" if isinstance(each, tuple) else each) for number, each in routed]
        return [each for index, each in enumerate(plain) if index == 0 or each != plain[index - 1]]

    def _number(self, request: RoutedRequest) -> int:
        return self.requests.index(request)

    def _plain(self, decision: Decision) -> Any:
        if isinstance(decision, Send):
            return decision.replica.url
        if isinstance(decision, Queue):
            evicted = None if decision.evicted is None else self._number(decision.evicted)
            return "Queue", round(decision.until, 6), evicted
        return decision

    @contextmanager
    def _recorded(self, event: Event) -> Iterator[None]:
        outermost = not self._inside
        self._inside = True
        try:
            yield
        finally:
            self._inside = not outermost
        if outermost:
            self.events.append(event)


def replay(events: Sequence[Event]) -> RecordedBalancer:
    """A new balancer that gets ``events`` from the simulator's queue, each at its time in picoseconds."""
    queue, balancer = EventQueue(), RecordedBalancer()
    for event in events:
        queue.add(
            to_ticks(event.now), EventRank.LIFE, lambda now, event=event: _apply(balancer, event, to_seconds(now))
        )  # type: ignore[misc]
    while queue:
        queue.run_next()
    return balancer


def _apply(balancer: RecordedBalancer, event: Event, now: float) -> None:
    request = None if event.request is None else balancer.requests[event.request]
    match event.method:
        case "open_request":
            model, fleet, name, sender, turn = event.argument
            balancer.open_request(model, fleet, now, name=name, sender=sender, turn=turn)
        case "on_table":
            balancer.on_table(event.argument)
        case "on_engine_report":
            url, hung = event.argument
            balancer.on_engine_report(url, hung=hung)
        case _:
            assert request is not None
            _apply_to_request(balancer, request, event, now)


def _apply_to_request(balancer: RecordedBalancer, request: RoutedRequest, event: Event, now: float) -> None:
    match event.method:
        case "route":
            balancer.route(request, event.argument, now)
        case "on_result":
            url, result = event.argument
            balancer.on_result(request, url, result, now)
        case "on_attempt_end":
            balancer.on_attempt_end(request, event.argument)
        case "on_disconnect":
            balancer.on_disconnect(request)
