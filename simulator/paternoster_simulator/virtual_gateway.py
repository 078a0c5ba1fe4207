"""Runs the gateway's balancer in virtual time: a timer for each held request, and engines that answer at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_contract.routing import Replica as RoutedReplica
from paternoster_engine.core.errors import AdmissionError, QueueFull
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Queue, Reject, Result, Retry, ReturnResult, RoutedRequest
from paternoster_simulator.cost import TICKS_PER_SECOND, to_seconds, to_ticks
from paternoster_simulator.events import EventQueue, Rank
from paternoster_simulator.fleet import Pod
from paternoster_simulator.outcome.records import Records, RequestOutcome
from paternoster_simulator.prompts import filler_tokens, make_prompt, own_token
from paternoster_simulator.replica.replica import Replica
from paternoster_simulator.virtual_cache import VirtualCache, text_of
from paternoster_traces.trace import TraceRow

MODEL = "model"
"""Name of the only fleet in the routing table."""
HAND_OVER_SECONDS = 1.0
"""From a pod's drain until what it has goes on elsewhere, and between two tries where nothing is ready."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A request on its way through the fleet, and its row of the trace."""

    number: int
    row: TraceRow
    arrival: int
    routed: RoutedRequest
    outcome: RequestOutcome = RequestOutcome.HELD_TOO_LONG
    """The outcome if no further attempt is made."""
    output: Sequence[int] = ()
    """Tokens that engines before the present one made."""
    first_token: float | None = None
    """When it got its first, if that was at an engine before."""
    preemptions: int = 0
    """At engines before."""

    def add_progress(self, request: Request) -> None:
        """Add what an engine did for the request, which leaves it without an end."""
        self.output, self.preemptions = [*request.output], self.preemptions + request.num_preemptions
        self.first_token = self.first_token or request.first_token


class VirtualGateway:
    """Routes requests as the balancer decides, and records their outcomes."""

    def __init__(
        self,
        events: EventQueue,
        *,
        prefix_cache: bool,
        prefix_routing: bool = False,
        published_caches: bool = True,
        max_held: int,
        hold_timeout: float,
        wake: Callable[[Pod, Replica], None],
        idle: Callable[[Pod, int], None],
        hand_over: bool = True,
        balancer: Balancer | None = None,
    ) -> None:
        self.records = Records()
        self.requests = 0
        self._events = events
        self._prefix_cache = prefix_cache
        self._prefix_routing = prefix_routing
        self._published_caches = published_caches
        self._caches: dict[str, VirtualCache] = {}
        """What engines publish of their caches, by pod."""
        self._row = ModelRoute(max_held=max_held, hold_timeout_seconds=hold_timeout)
        self._wake = wake
        self._idle = idle
        self._hand_over = hand_over
        self._pods: dict[str, Pod] = {}
        """Ready pods by URL, which is their name."""
        self._balancer = balancer or Balancer()
        self._held: dict[RoutedRequest, tuple[Ticket, int]] = {}
        """Held requests, each with the moment at which it is routed again."""
        self._tickets: dict[str, Ticket] = {}
        """Tickets of requests in flight."""
        self._params: dict[int, SamplingParams] = {}
        self._change_table(0)

    @property
    def in_flight(self) -> int:
        return len(self._tickets)

    @property
    def held(self) -> int:
        return len(self._held)

    @property
    def unanswered(self) -> int:
        return self.in_flight + self.held

    def on_arrival(self, row: TraceRow, now: int) -> None:
        """Route a request that a client sends ``now``."""
        self.requests += 1
        text = text_of(row) if self._prefix_routing else None
        routed = self._balancer.open_request(MODEL, "", to_seconds(now), prompt=text)
        self._route(Ticket(self.requests, row, now, routed), now)

    def on_first_tokens(self, pod: Pod, requests: list[Request], now: int) -> None:
        """Prompts are computed, and their blocks are in the cache of the pod's engine."""
        cache = self._caches.get(pod.name)
        for request in requests:
            ticket = self._tickets.get(request.request_id)
            if ticket is not None and ticket.routed.prompt is not None:
                self._balancer.on_result(ticket.routed, pod.name, Result.ANSWERED, to_seconds(now))
                if cache is not None:
                    cache.record_prompt(request, ticket.routed.prompt)

    def on_pod_ready(self, pod: Pod, now: int) -> None:
        """Send a pod requests from now on; route held requests again, first come first served."""
        self._pods[pod.name] = pod
        if self._prefix_routing:
            self._balancer.prefixes.remove_replica(pod.name)
        if self._prefix_routing and self._published_caches:
            self._caches[pod.name] = VirtualCache(pod.name, pod.serving.scheduler, self._balancer.prefixes.reported)
        self._change_table(now)

    def on_pod_leaving(self, pod: Pod, now: int) -> None:
        """Send a pod no more requests."""
        self._caches.pop(pod.name, None)
        if self._pods.pop(pod.name, None) is not None:
            self._change_table(now)
            if self._hand_over:
                self._begin_hand_over(pod, now)

    def _begin_hand_over(self, pod: Pod, now: int) -> None:
        """Once gateways have the table, and a replica is there that may go on with what runs."""

        def begin_if_ready(now: int) -> None:
            if pod.engine is None or pod.name in self._pods:
                return
            if not self._pods:
                self._begin_hand_over(pod, now)
                return
            pod.engine.begin_hand_over(now)
            self._wake(pod, pod.engine)

        self._events.add(now + to_ticks(HAND_OVER_SECONDS), Rank.LIFE, begin_if_ready)

    def move_requests(self, pod: Pod, now: int) -> None:
        """Route all requests of a pod anew that begins no step any more."""
        released: list[RoutedRequest] = []
        moved = []
        for request in pod.serving.take_requests(now):
            ticket = self._tickets.pop(request.request_id)
            pod.serving.in_flight -= 1
            ticket.add_progress(request)
            released += self._balancer.on_attempt_end(ticket.routed, pod.name)
            self._balancer.begin_continuation(ticket.routed, pod.name)
            moved.append(ticket)
        for ticket in moved:
            self._route(ticket, now)
        self._release(released, now)
        if pod.serving.in_flight == 0:
            self._idle(pod, now)

    def on_finished(self, pod: Pod, requests: list[Request], now: int) -> None:
        """Record the answers of requests that have their last token."""
        released: list[RoutedRequest] = []
        pod.serving.in_flight -= len(requests)
        for request in requests:
            ticket = self._tickets.pop(request.request_id)
            self._balancer.on_result(ticket.routed, pod.name, Result.ANSWERED, to_seconds(now))
            released += self._balancer.on_attempt_end(ticket.routed, pod.name)
            first_token = ticket.first_token or request.first_token
            assert first_token is not None
            self.records.add(
                RequestOutcome.FINISHED,
                ticket.arrival / TICKS_PER_SECOND,
                ticket.row.prompt_tokens,
                len(request.output),
                ttft=(first_token - ticket.arrival) / TICKS_PER_SECOND,
                end_to_end=(now - ticket.arrival) / TICKS_PER_SECOND,
                preemptions=ticket.preemptions + request.num_preemptions,
            )
        self._release(released, now)
        if pod.serving.in_flight == 0:
            self._idle(pod, now)

    def on_engine_end(self, pod: Pod, requests: list[Request], now: int) -> None:
        """Route the requests of an ended engine anew: begun streams go on from their tokens, the others begin again."""
        tickets = [(self._tickets.pop(request.request_id), request) for request in requests]
        released: list[RoutedRequest] = []
        for ticket, request in tickets:
            ticket.add_progress(request)
            ticket.outcome = RequestOutcome.BROKEN
            result = Result.UNREACHABLE if request.first_token is None else Result.BROKEN
            released += self._balancer.on_attempt_end(ticket.routed, pod.name)
            released += self._balancer.on_result(ticket.routed, pod.name, result, to_seconds(now))
            if result is Result.BROKEN:
                self._balancer.begin_continuation(ticket.routed, pod.name)
        for ticket, request in tickets:
            if request.first_token is None and ticket.routed.retry is Retry.NONE:
                self._lose_request(ticket, ticket.outcome)
            else:
                self._route(ticket, now)
        self._release(released, now)

    def close(self) -> None:
        """End the simulation: requests without an answer are recorded as unfinished."""
        for ticket in [*(ticket for ticket, _ in self._held.values()), *self._tickets.values()]:
            self._lose_request(ticket, RequestOutcome.UNFINISHED)
        self._held.clear()
        self._tickets.clear()

    def _change_table(self, now: int) -> None:
        replicas = [RoutedReplica.model_construct(name=name, url=name, ready=True) for name in self._pods]
        self._row = self._row.model_copy(update={"replicas": replicas})
        self._release(self._balancer.on_table(RoutingTable(models={MODEL: self._row})), now)

    def _release(self, requests: Sequence[RoutedRequest], now: int) -> None:
        """Route ``requests`` again that are still held."""
        for routed in requests:
            if routed in self._held:
                self._route_held(routed, now)

    def _route_held(self, routed: RoutedRequest, now: int) -> None:
        self._route(self._held[routed][0], now)

    def _route(self, ticket: Ticket, now: int) -> None:
        """Do what the balancer decides for a request, until it is in flight, held or lost."""
        self._held.pop(ticket.routed, None)
        while True:
            decision = self._balancer.route(ticket.routed, self._row, to_seconds(now))
            self._release(self._balancer.pop_released(), now)
            if isinstance(decision, Queue):
                self._hold_ticket(ticket, decision, now)
                return
            if isinstance(decision, Reject):
                self._lose_request(ticket, RequestOutcome.HELD_TOO_LONG)
                return
            if isinstance(decision, ReturnResult):
                self._lose_request(ticket, ticket.outcome)
                return
            result = self._send(ticket, self._pods[decision.replica.url], now)
            if result is None:
                return
            ticket.outcome = RequestOutcome.REFUSED
            released = self._balancer.on_result(ticket.routed, decision.replica.url, result, to_seconds(now))
            released += self._balancer.on_attempt_end(ticket.routed, decision.replica.url)
            self._release(released, now)
            if ticket.routed.retry is Retry.NONE:
                self._lose_request(ticket, ticket.outcome)
                return

    def _send(self, ticket: Ticket, pod: Pod, now: int) -> Result | None:
        """Send the request to a pod's engine; the result where it is refused at once."""
        engine, request = pod.serving, self._build_request(ticket, now)
        before = engine.end
        try:
            engine.add(request, now)
        except QueueFull:
            return Result.FULL
        except AdmissionError:
            return Result.ANSWERED
        self._tickets[request.request_id] = ticket
        engine.in_flight += 1
        if before is None or engine.end != before:
            self._wake(pod, engine)
        return None

    def _hold_ticket(self, ticket: Ticket, decision: Queue, now: int) -> None:
        # A float of seconds is coarser than a tick: the next one may not be the past.
        again = max(to_ticks(decision.until), now + 1)
        self._held[ticket.routed] = ticket, again
        if decision.evicted is not None:
            self._route_held(decision.evicted, now)

        def route_again(now: int) -> None:
            if self._held.get(ticket.routed) == (ticket, now):
                self._route(ticket, now)

        self._events.add(again, Rank.LIFE, route_again)

    def _lose_request(self, ticket: Ticket, outcome: RequestOutcome) -> None:
        self._balancer.on_disconnect(ticket.routed)
        first_token = ticket.first_token
        self.records.add(
            outcome,
            ticket.arrival / TICKS_PER_SECOND,
            ticket.row.prompt_tokens,
            len(ticket.output),
            ttft=float("nan") if first_token is None else (first_token - ticket.arrival) / TICKS_PER_SECOND,
            preemptions=ticket.preemptions,
        )

    def _build_request(self, ticket: Ticket, now: int) -> Request:
        row, number = ticket.row, ticket.number
        tokens = (
            make_prompt(row.prompt_tokens, row.prefix_blocks, number)
            if self._prefix_cache
            else filler_tokens(row.prompt_tokens)
        )
        params = self._params.get(row.output_tokens)
        if params is None:
            params = self._params[row.output_tokens] = SamplingParams(
                max_tokens=row.output_tokens, temperature=0.0, ignore_eos=True
            )
        request = Request(RequestSpec(str(number), tokens, params, arrival=now, seed=own_token(number)))
        if ticket.first_token is not None:
            request.output += ticket.output
            request.status = RequestStatus.PREEMPTED  # as the engine admits what began elsewhere
        return request
