"""Runs the sessions of calls in virtual time: a timer for each held request, and engines that answer at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_contract.routing import Replica as RoutedReplica
from paternoster_contract.stream_journal import COMMENT, HAND_OVER
from paternoster_engine.core.errors import AdmissionError, QueueFull
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.admission.quarantine import Quarantine
from paternoster_gateway.call.actions import (
    AwaitTurn,
    Break,
    BreakCause,
    EndInError,
    Forward,
    Hold,
    Pause,
    ProbeReplicas,
    StartAttempt,
)
from paternoster_gateway.call.attempt import Attempt, HandedOver, ReplicaAnswer
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.observer import CallObserver
from paternoster_gateway.call.registry import SessionRegistry
from paternoster_gateway.call.router import Router
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.call.suspicion import Suspicion
from paternoster_gateway.errors import GatewayError, unavailable_error
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Result, RoutedRequest
from paternoster_gateway.routing.limits import ANSWERED_SECONDS, HAND_OVER_SECONDS
from paternoster_simulator.cost import TICKS_PER_SECOND, to_seconds, to_ticks
from paternoster_simulator.events import EventQueue, EventRank
from paternoster_simulator.fleet import Pod
from paternoster_simulator.outcome.records import Records, RequestOutcome
from paternoster_simulator.prompts import filler_tokens, make_prompt, own_token
from paternoster_simulator.replica.replica import SimulatedReplica
from paternoster_simulator.virtual_cache import VirtualCache, text_of
from paternoster_traces.trace import TraceRow

MODEL = "model"
"""Name of the only fleet in the routing table."""
ADMISSION = ClientAdmission(MODEL)
NUMERICS = "simulated"
"""Numerics of all replicas, so that each goes on with another one's streams."""
FRAME = COMMENT + b"[]\ndata: \n\n"
"""The first piece of a stream, by which it is no suspect any more."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A request on its way through the fleet, and its row of the trace."""

    number: int
    row: TraceRow
    arrival: int
    session: CallSession
    outcome: RequestOutcome = RequestOutcome.HELD_TOO_LONG
    """The outcome if no further attempt is made."""
    error: GatewayError | None = None
    """Error that the client gets then, where no replica answered."""
    url: str = ""
    """URL of the replica that has it."""
    sent: int = 0
    """Time at which it was sent there."""
    has_frame: bool = False
    """Whether that one has sent a frame of it."""
    output: Sequence[int] = ()
    """Tokens that engines before the present one made."""
    first_token: float | None = None
    """When it got its first, if that was at an engine before."""
    preemptions: int = 0
    """At engines before."""

    @property
    def routed(self) -> RoutedRequest:
        return self.session.request

    def add_progress(self, request: Request) -> None:
        """Add what an engine did for the request, which leaves it without an end."""
        self.output, self.preemptions = [*request.output], self.preemptions + request.num_preemptions
        self.first_token = self.first_token or request.first_token


class RejectedContinuations(CallObserver):
    """Whether a stream ended because it was rejected, and not because no replica went on with it."""

    def __init__(self) -> None:
        self.was_rejected = False

    def on_not_continued(self, url: str, reason: object) -> None:
        self.was_rejected = not url


class VirtualGateway:
    """Carries out the actions of sessions, and records their outcomes."""

    def __init__(
        self,
        events: EventQueue,
        *,
        prefix_cache: bool,
        prefix_routing: bool = False,
        published_caches: bool = True,
        max_held: int,
        hold_timeout: float,
        wake: Callable[[Pod, SimulatedReplica], None],
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
        self._now = 0
        self._balancer = balancer or Balancer()
        self._router = Router(self._balancer, lambda: to_seconds(self._now), lambda: 0.0, self._wake_requests)
        self._rejections = RejectedContinuations()
        self._registry = SessionRegistry(self._router, Quarantine(), self._rejections, self._wake_requests)
        self._call = Call("", MODEL, b"", {}, is_stream=True)
        """Stands for all calls, which differ in the body alone, of which a digest is kept."""
        self._held: dict[RoutedRequest, tuple[Ticket, int | None]] = {}
        """Requests that wait, each with the moment at which it goes on, if it has one."""
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
        """Begin the session of a request that a client sends ``now``."""
        self._now = now
        self.requests += 1
        text = text_of(row) if self._prefix_routing else None
        routed = self._router.open_request(ADMISSION, text)
        call = replace(self._call, body=b"%d" % self.requests)
        ticket = Ticket(self.requests, row, now, CallSession(self._registry, call, ADMISSION, routed))
        self._advance(ticket)

    def on_first_tokens(self, pod: Pod, requests: list[Request], now: int) -> None:
        """Prompts are computed, and their blocks are in the cache of the pod's engine."""
        self._now = now
        cache = self._caches.get(pod.name)
        for request in requests:
            if (ticket := self._tickets.get(request.request_id)) is not None:
                self._begin_stream(ticket)
                if cache is not None and ticket.routed.prompt is not None:
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

        self._events.add(now + to_ticks(HAND_OVER_SECONDS), EventRank.LIFE, begin_if_ready)

    def move_requests(self, pod: Pod, now: int) -> None:
        """All requests of a pod that begins no step any more go on elsewhere."""
        self._now = now
        tickets = []
        for request in pod.serving.take_requests(now):
            ticket = self._tickets.pop(request.request_id)
            pod.serving.in_flight -= 1
            ticket.add_progress(request)
            tickets.append(ticket)
        for ticket in tickets:
            if ticket.first_token is None:
                error = unavailable_error("The replica drains.")
                handed_over = HandedOver(NUMERICS, b"")
                self._advance(ticket, Attempt(pod.name, error, "not_serving", handed_over=handed_over))
            else:
                self._begin_stream(ticket)  # at once: it is admitted, whatever its prompt takes
                ticket.session.read_piece(HAND_OVER + b"\n\n")
                self._advance(ticket, Pause.ENDED)
        if pod.serving.in_flight == 0:
            self._idle(pod, now)

    def on_finished(self, pod: Pod, requests: list[Request], now: int) -> None:
        """Record the answers of requests that have their last token."""
        self._now = now
        pod.serving.in_flight -= len(requests)
        for request in requests:
            ticket = self._tickets.pop(request.request_id)
            first_token = ticket.first_token or request.first_token
            assert first_token is not None
            self._begin_stream(ticket)
            ticket.session.advance(Pause.ENDED)
            self.records.add(
                RequestOutcome.FINISHED,
                ticket.arrival / TICKS_PER_SECOND,
                ticket.row.prompt_tokens,
                len(request.output),
                ttft=(first_token - ticket.arrival) / TICKS_PER_SECOND,
                end_to_end=(now - ticket.arrival) / TICKS_PER_SECOND,
                preemptions=ticket.preemptions + request.num_preemptions,
            )
        if pod.serving.in_flight == 0:
            self._idle(pod, now)

    def on_engine_end(self, pod: Pod, requests: list[Request], now: int) -> None:
        """Requests of an ended engine go on elsewhere: begun streams from their tokens, the others begin again."""
        self._now = now
        tickets = [self._tickets.pop(request.request_id) for request in requests]
        for ticket, request in zip(tickets, requests, strict=True):
            ticket.add_progress(request)
            ticket.outcome = RequestOutcome.BROKEN
            if ticket.has_frame:
                self._advance(ticket, Break(BreakCause.CLOSED))
                continue
            ticket.error = unavailable_error("The replica ended.")
            was_read = to_seconds(now - ticket.sent) >= ANSWERED_SECONDS
            self._advance(ticket, Attempt(
                pod.name, ticket.error, "unreachable", Result.UNREACHABLE, is_stop=True,
                suspicion=Suspicion.NONE if was_read else Suspicion.POSSIBLE, broke_off=ticket.first_token is not None,
            ))  # fmt: skip

    def close(self) -> None:
        """End the simulation: requests without an answer are recorded as unfinished."""
        for ticket in [*(ticket for ticket, _ in self._held.values()), *self._tickets.values()]:
            self._lose_request(ticket, RequestOutcome.UNFINISHED)
        self._held.clear()
        self._tickets.clear()

    def _change_table(self, now: int) -> None:
        self._now = now
        replicas = [RoutedReplica(name=name, url=name, ready=True) for name in self._pods]
        self._row = self._row.model_copy(update={"replicas": replicas})
        self._router.change_table(RoutingTable(models={MODEL: self._row}))

    def _wake_requests(self, requests: Sequence[RoutedRequest]) -> None:
        """Go on with ``requests`` that still wait."""
        for routed in requests:
            if routed in self._held:
                self._advance(self._held[routed][0])

    def _begin_stream(self, ticket: Ticket) -> None:
        """The replica sends the first piece of its answer, if it has not."""
        if not ticket.has_frame:
            answer = ReplicaAnswer(200, [], ticket.url, len(ticket.routed.tried), NUMERICS, is_stream=True)
            ticket.session.advance(Attempt(ticket.url, answer, result=Result.ANSWERED))
            ticket.session.read_piece(FRAME)
            ticket.has_frame = True

    def _advance(self, ticket: Ticket, event: object = None) -> None:
        """Do what the session decides behind ``event``, until the request is in flight, waits or is lost."""
        self._held.pop(ticket.routed, None)
        while True:
            self._rejections.was_rejected = False
            try:
                action = ticket.session.advance(event)
            except GatewayError as error:
                is_result = error is ticket.error or error.code is not None
                self._lose_request(ticket, ticket.outcome if is_result else RequestOutcome.HELD_TOO_LONG)
                return
            event = None
            match action:
                case Hold(until):
                    # A float of seconds is coarser than a tick: the next one may not be the past.
                    self._let_wait(ticket, max(to_ticks(until), self._now + 1))
                    return
                case AwaitTurn():
                    self._held[ticket.routed] = ticket, None
                    return
                case ProbeReplicas(urls):
                    # Behind the other requests of the replica that stopped, as the driver on asyncio does.
                    self._let_wait(ticket, self._now, lambda: [url for url in urls if url in self._pods])
                    return
                case StartAttempt():
                    if (event := self._send(ticket, action)) is None:
                        return
                case Forward():  # of a refusal: a stream goes on in on_first_tokens
                    self._lose_request(ticket, RequestOutcome.REFUSED)
                    return
                case EndInError():
                    rejected = self._rejections.was_rejected
                    self._lose_request(ticket, RequestOutcome.HELD_TOO_LONG if rejected else RequestOutcome.BROKEN)
                    return

    def _let_wait(self, ticket: Ticket, until: int, read_event: Callable[[], object] | None = None) -> None:
        self._held[ticket.routed] = ticket, until

        def go_on(now: int) -> None:
            if self._held.get(ticket.routed) == (ticket, until):
                self._now = now
                self._advance(ticket, None if read_event is None else read_event())

        self._events.add(until, EventRank.LIFE, go_on)

    def _send(self, ticket: Ticket, action: StartAttempt) -> Attempt | None:
        """Send the request to a pod's engine; what came of it where it is refused at once."""
        pod = self._pods[action.replica.url]
        engine, request = pod.serving, self._build_request(ticket, self._now)
        ticket.url, ticket.sent, ticket.has_frame = pod.name, self._now, False
        before = engine.end
        try:
            engine.add(request, self._now)
        except QueueFull:
            return self._refuse_request(ticket, 503, Result.FULL)
        except AdmissionError:
            return self._refuse_request(ticket, 400, Result.ANSWERED)
        self._tickets[request.request_id] = ticket
        engine.in_flight += 1
        if before is None or engine.end != before:
            self._wake(pod, engine)
        if action.seconds_alone is not None:
            until, sent = self._now + to_ticks(action.seconds_alone), (request.request_id, ticket.url, ticket.sent)
            self._events.add(until, EventRank.LIFE, lambda now: self._end_turn(ticket, sent, now))
        return None

    def _end_turn(self, ticket: Ticket, sent: tuple[str, str, int], now: int) -> None:
        """End the turn of ``ticket``, where it is still at the replica and of the time of ``sent``."""
        self._now = now
        if self._tickets.get(sent[0]) is ticket and (ticket.url, ticket.sent) == sent[1:]:
            ticket.session.end_turn()

    def _refuse_request(self, ticket: Ticket, status: int, result: Result) -> Attempt:
        ticket.outcome = RequestOutcome.REFUSED
        answer = ReplicaAnswer(status, [], ticket.url, len(ticket.routed.tried))
        return Attempt(ticket.url, answer, f"status_{status}", result)

    def _lose_request(self, ticket: Ticket, outcome: RequestOutcome) -> None:
        ticket.session.close()
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
