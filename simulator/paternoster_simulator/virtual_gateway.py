"""The gateway in virtual time: who gets a request, who is asked next, and who waits for a replica."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from paternoster_engine.bench.requests.trace import TraceRow
from paternoster_engine.core.errors import AdmissionError, QueueFull
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_gateway.routing.least_loaded import LeastLoaded
from paternoster_gateway.routing.limits import EJECTION_SECONDS, MAX_ATTEMPTS
from paternoster_simulator.cost import TICKS_PER_SECOND, ticks
from paternoster_simulator.events import EventQueue, Rank
from paternoster_simulator.fleet import Pod
from paternoster_simulator.outcome.records import Records, RequestOutcome
from paternoster_simulator.prompts import filler, own_token, prompt
from paternoster_simulator.replica.replica import Replica

EJECTION = ticks(EJECTION_SECONDS)
"""Picoseconds for which the gateway sends nothing to a replica that broke off."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A request on its way through the fleet."""

    number: int
    row: TraceRow
    arrival: int
    attempts: int = 0
    tried: list[str] = field(default_factory=list)
    hold_until: int | None = None
    """When a held request gives up."""
    pod: Pod | None = None


class VirtualGateway:
    """Takes requests in and keeps the record of what became of them."""

    def __init__(
        self,
        events: EventQueue,
        *,
        prefix_cache: bool,
        max_held: int,
        hold_timeout: float,
        wake: Callable[[Pod, Replica], None],
        idle: Callable[[Pod, int], None],
    ) -> None:
        self.records = Records()
        self.requests = 0
        self.in_flight = 0
        self.held: deque[Ticket] = deque()
        self._events = events
        self._prefix_cache = prefix_cache
        self._max_held = max_held
        self._hold_timeout = ticks(hold_timeout)
        self._wake = wake
        self._idle = idle
        self._pods: dict[str, Pod] = {}
        self._balancer = LeastLoaded()
        self._ejected_until: dict[str, int] = {}
        self._tickets: dict[str, Ticket] = {}
        self._params: dict[int, SamplingParams] = {}
        self._turn = 0

    @property
    def unanswered(self) -> int:
        return self.in_flight + len(self.held)

    def arrive(self, row: TraceRow, now: int) -> None:
        """A client's request."""
        self.requests += 1
        self._send(Ticket(self.requests, row, now), now)

    def ready(self, pod: Pod, now: int) -> None:
        """A pod may be sent requests; those held look again, first come first served."""
        self._pods[pod.name] = pod
        self._balancer.add(pod.name)
        for ticket in list(self.held):
            self._look_again(ticket, now)

    def leaving(self, pod: Pod, now: int) -> None:
        """A pod takes no more."""
        self._balancer.remove(pod.name)
        self._pods.pop(pod.name, None)

    def finished(self, pod: Pod, requests: list[Request], now: int) -> None:
        """These have had their last token."""
        count = len(requests)
        self.in_flight -= count
        pod.serving.in_flight -= count
        self._balancer.change(pod.name, -count)
        for request in requests:
            ticket = self._tickets.pop(request.request_id)
            assert request.first_token is not None
            self.records.add(
                RequestOutcome.FINISHED,
                ticket.arrival / TICKS_PER_SECOND,
                ticket.row.prompt_tokens,
                len(request.output),
                ttft=(request.first_token - ticket.arrival) / TICKS_PER_SECOND,
                end_to_end=(now - ticket.arrival) / TICKS_PER_SECOND,
                preemptions=request.num_preemptions,
            )
        if pod.serving.in_flight == 0:
            self._idle(pod, now)

    def broken(self, pod: Pod, requests: list[Request], now: int) -> None:
        """An engine ended: streams that had begun are lost, the others try elsewhere."""
        self.in_flight -= len(requests)
        if requests:
            self._ejected_until[pod.name] = now + EJECTION
        for request in requests:
            ticket = self._tickets.pop(request.request_id)
            ticket.pod = None
            if request.first_token is not None or ticket.attempts >= MAX_ATTEMPTS:
                self._lose(ticket, RequestOutcome.BROKEN, request)
            else:
                ticket.tried.append(pod.name)
                self._send(ticket, now)

    def close(self) -> None:
        """The end of the simulation: what has no answer yet never gets one."""
        for ticket in [*self.held, *self._tickets.values()]:
            self._lose(ticket, RequestOutcome.UNFINISHED)
        self.held.clear()
        self._tickets.clear()

    def _send(self, ticket: Ticket, now: int) -> None:
        while True:
            pod = self._pick(ticket, now)
            if pod is None:
                self._hold(ticket, now)
                return
            ticket.attempts += 1
            engine, request = pod.serving, self._request(ticket, now)
            idle = engine.end is None
            before = engine.end
            try:
                engine.add(request, now)
            except QueueFull:
                if ticket.attempts >= MAX_ATTEMPTS:
                    self._lose(ticket, RequestOutcome.REFUSED)
                    return
                ticket.tried.append(pod.name)
                continue
            except AdmissionError:
                self._lose(ticket, RequestOutcome.REFUSED)
                return
            ticket.pod = pod
            self._tickets[request.request_id] = ticket
            self.in_flight += 1
            engine.in_flight += 1
            self._balancer.change(pod.name, 1)
            if idle or engine.end != before:
                self._wake(pod, engine)
            return

    def _pick(self, ticket: Ticket, now: int) -> Pod | None:
        self._turn += 1
        avoid: set[str] | tuple[str, ...] = ()
        if self._ejected_until or ticket.tried:
            self._ejected_until = {name: until for name, until in self._ejected_until.items() if until > now}
            avoid = {*ticket.tried, *self._ejected_until}
        name = self._balancer.pick(avoid=avoid, turn=self._turn)
        return None if name is None else self._pods[name]

    def _hold(self, ticket: Ticket, now: int) -> None:
        if ticket.hold_until is None:
            ticket.hold_until = now + self._hold_timeout
        if len(self.held) >= self._max_held or ticket.hold_until <= now:
            self._lose(ticket, RequestOutcome.HELD_TOO_LONG)
            return
        ticket.tried.clear()
        self.held.append(ticket)
        self._wait(ticket, now)

    def _wait(self, ticket: Ticket, now: int) -> None:
        # An ejected replica returns without an event from the fleet.
        assert ticket.hold_until is not None
        again = min(ticket.hold_until, now + EJECTION)
        self._events.push(again, Rank.LIFE, lambda now: self._look_again(ticket, now, timer=True))

    def _look_again(self, ticket: Ticket, now: int, *, timer: bool = False) -> None:
        if ticket not in self.held:
            return
        assert ticket.hold_until is not None
        if self._pick(ticket, now) is not None:
            self.held.remove(ticket)
            self._send(ticket, now)
        elif ticket.hold_until <= now:
            self.held.remove(ticket)
            self._lose(ticket, RequestOutcome.HELD_TOO_LONG)
        elif timer:
            self._wait(ticket, now)

    def _lose(self, ticket: Ticket, outcome: RequestOutcome, request: Request | None = None) -> None:
        begun = request is not None and request.first_token is not None
        self.records.add(
            outcome,
            ticket.arrival / TICKS_PER_SECOND,
            ticket.row.prompt_tokens,
            len(request.output) if request is not None else 0,
            ttft=(request.first_token - ticket.arrival) / TICKS_PER_SECOND
            if request is not None and request.first_token is not None
            else float("nan"),
            preemptions=request.num_preemptions if begun and request is not None else 0,
        )

    def _request(self, ticket: Ticket, now: int) -> Request:
        row, number = ticket.row, ticket.number
        tokens = (
            prompt(row.prompt_tokens, row.prefix_blocks, number) if self._prefix_cache else filler(row.prompt_tokens)
        )
        params = self._params.get(row.output_tokens)
        if params is None:
            params = self._params[row.output_tokens] = SamplingParams(
                max_tokens=row.output_tokens, temperature=0.0, ignore_eos=True
            )
        return Request(RequestSpec(str(number), tokens, params, arrival=now, seed=own_token(number)))
