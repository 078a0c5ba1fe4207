"""A gateway in virtual time: carries out what the real sessions decide, and checks what they must never do."""

from collections.abc import Callable, Sequence

from paternoster_contract.routing import RoutingTable
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.admission.quarantine import Quarantine
from paternoster_gateway.call.actions import (
    Abort,
    AwaitTurn,
    Break,
    BreakCause,
    Discard,
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
from paternoster_gateway.call.registry import SessionRegistry, UnansweredCall
from paternoster_gateway.call.router import Router
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.call.suspicion import Suspicion, suspicion_of
from paternoster_gateway.errors import GatewayError, unavailable_error
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Result, RoutedRequest
from paternoster_gateway.routing.limits import (
    ANSWERED_SECONDS,
    HAND_OVER_SECONDS,
    PROBE_SECONDS,
    PROBES,
    QUIET_SECONDS,
)
from paternoster_http.open_requests import open_request_alone
from streams.virtual.events import Clock
from streams.virtual.replicas import NUMERICS, Connection, VirtualCall, VirtualReplica
from streams.virtual.running_call import RESULTS, RunningCall, SeenWait, Violation


class SessionGateway(CallObserver):
    """One gateway. Its table, hand-overs and probes come late, twice, or in another order."""

    def __init__(
        self, clock: Clock, replicas: dict[str, VirtualReplica], on_end: Callable[[RunningCall, str], None]
    ) -> None:
        """``on_end`` is called with each call that ends, and how."""
        self.clock = clock
        self._replicas = replicas
        self._on_end = on_end
        self.router = Router(Balancer(), lambda: clock.now, lambda: clock.now, self.wake)
        self.registry = SessionRegistry(self.router, Quarantine(), self, self.wake)
        self.live: dict[RoutedRequest, RunningCall] = {}
        self._is_moving = False
        self._open_request = open_request_alone()

    def begin_call(self, call: VirtualCall) -> None:
        admission = ClientAdmission(call.model, call.model)
        body = b"%d" % call.number
        client_call = Call(
            "/v1/completions", call.model, body, {}, is_stream=call.is_stream, open_request=self._open_request
        )
        request = self.router.open_request(admission)
        session = CallSession(self.registry, client_call, admission, request)
        run = RunningCall(call, session, call.expected())
        self.live[request] = run
        self._advance(run)

    def leave(self, run: RunningCall) -> None:
        """The client is gone."""
        if not run.ended:
            self._end(run, "left")

    def change_table(self, table: RoutingTable) -> None:
        self.router.change_table(table)
        for run in list(self.live.values()):
            if run.forwarded is not None and run.forwarded.replica in self.router.balancer.handing_over:
                self._read(run, b"")
        if not self._is_moving and self.registry.list_movable():
            self._is_moving = True
            self._move_calls()

    def wake(self, requests: Sequence[RoutedRequest]) -> None:
        """Have the calls go on later, as tasks do."""
        for request in requests:
            if (run := self.live.get(request)) is not None and run.is_waiting:
                self.clock.after(0.0, self._go_on, run, run.wakes)

    def on_hang(self, replica: VirtualReplica) -> None:
        """The replica has answered no probe."""
        if replica.state != "hung":
            return
        self.router.report_hung(replica.url, True)
        for run in list(self.live.values()):
            for connection in list(run.connections):
                if connection.replica is replica:
                    self._lose_connection(run, connection, hung=True)

    def on_recovery(self, url: str) -> None:
        self.router.report_hung(url, False)

    # The gateway's side of connections.

    def on_head(self, connection: Connection, status: int) -> None:
        run = self._run_of(connection)
        if run is None or run.waiting is not connection:
            return
        if status == 0:
            self._fail_attempt(run, connection, "unreachable", Suspicion.NONE, is_stop=False)
            return
        if status != 200:
            result = RESULTS.get(status, Result.ANSWERED)
            if result is Result.NOT_THE_ENGINE:
                self._close(run, connection)
                run.waiting = None
                error = unavailable_error("not the engine")
                self._advance(run, Attempt(connection.replica.url, error, f"status_{status}", result))
            else:
                run.arrived[connection] = [True]
                self._answer(run, connection, status, result)
            return
        if run.until_admitted:
            self._answer(run, connection, 200, Result.ANSWERED)

    def on_piece(self, connection: Connection, piece: bytes) -> None:
        if (run := self._run_of(connection)) is None:
            return
        run.call.kills.clear()
        if run.waiting is connection:
            run.arrived[connection] = [piece]
            self._answer(run, connection, 200, Result.ANSWERED)
        elif run.forwarded is not None and run.answers.get(id(run.forwarded)) is connection:
            self._read(run, piece)
        else:
            run.arrived.setdefault(connection, []).append(piece)

    def on_journal(self, connection: Connection, tokens: int) -> None:
        if (run := self._run_of(connection)) is not None:
            run.journal_tokens = tokens
            run.call.kills.clear()

    def on_handed_over(self, connection: Connection, tokens: int, failed: bool) -> None:
        run = self._run_of(connection)
        if run is None or run.waiting is not connection:
            return
        self._close(run, connection)
        run.waiting = None
        handed_over = HandedOver(NUMERICS, _encode_tokens(tokens), failed=failed)
        error = unavailable_error("it ends")
        self._advance(run, Attempt(connection.replica.url, error, "not_serving", handed_over=handed_over))

    def on_end(self, connection: Connection, whole: bool) -> None:
        if (run := self._run_of(connection)) is None:
            return
        if not whole:
            self._lose_connection(run, connection, hung=False)
        elif run.forwarded is not None and run.answers.get(id(run.forwarded)) is connection:
            self._advance(run, Pause.ENDED)
        elif run.waiting is connection:  # the client has all frames
            run.arrived[connection] = [True]
            self._answer(run, connection, 200, Result.ANSWERED)
        else:
            run.arrived.setdefault(connection, []).append(True)

    # What sessions decide.

    def _advance(self, run: RunningCall, event: object = None) -> None:
        run.is_waiting, run.forwarded = False, None
        while True:
            try:
                action = run.session.advance(event)
            except GatewayError as error:
                self._end(run, error.code or f"error {error.status}")
                return
            event = None
            match action:
                case None:
                    self._end(run, "ended")
                    return
                case Hold(until):
                    self._let_wait(run)
                    self.clock.at(until, self._go_on, run, run.wakes)
                    return
                case AwaitTurn():
                    self._let_wait(run)
                    return
                case ProbeReplicas(urls):
                    self._probe(run, urls)
                    return
                case StartAttempt():
                    self._start(run, action)
                    return
                case Discard(answer):
                    self._close(run, run.answers.pop(id(answer)))
                case Forward(answer):
                    if not self._forward(run, answer):
                        return
                    event, run.forwarded = self._pause, None
                case EndInError(cause):
                    self._end(run, cause.code or "cut")
                    return
                case Abort():
                    self._end(run, "aborted")
                    return

    def _let_wait(self, run: RunningCall) -> None:
        run.is_waiting = True
        run.wakes += 1

    def _go_on(self, run: RunningCall, wakes: int, event: object = None) -> None:
        if not run.ended and run.is_waiting and run.wakes == wakes:
            self._advance(run, event)

    def _probe(self, run: RunningCall, urls: tuple[str, ...]) -> None:
        answered = [url for url in urls if self._replicas[url].state == "up"]
        seconds = 0.001 if len(answered) == len(urls) else PROBE_SECONDS
        self._let_wait(run)
        self.clock.after(seconds, self._go_on, run, run.wakes, answered)

    def _start(self, run: RunningCall, action: StartAttempt) -> None:
        for connection in run.connections:
            if not (action.until_admitted and run.connections == [connection]):
                raise Violation(f"attempt: call {run.call.number} has two attempts, and a third one begins")
        resume = action.call.headers.get("X-Paternoster-Resume")
        first = 0 if resume is None else int(resume.split()[0])
        tokens = first if run.call.is_stream else 0
        tokens = max(tokens, action.call.journal.count(b"["))
        replica = self._replicas[action.replica.url]
        connection = Connection(run.call, replica, self, first, tokens, self.clock, self.clock.now)
        run.connections.append(connection)
        run.waiting, run.until_admitted, run.journal_tokens = connection, action.until_admitted, None
        if action.seconds_alone is not None:
            self.clock.after(action.seconds_alone, self._end_turn, run, connection)
        self.clock.after(self.clock.draw_delay(), replica.receive, connection)

    def _end_turn(self, run: RunningCall, connection: Connection) -> None:
        if run.waiting is connection:
            run.session.end_turn()

    def _answer(self, run: RunningCall, connection: Connection, status: int, result: Result) -> None:
        run.waiting = None
        is_stream = run.call.is_stream and status == 200
        numerics = NUMERICS if is_stream else None
        answer = ReplicaAnswer(status, [], connection.replica.url, 1, numerics, is_stream=is_stream)
        run.answers[id(answer)] = connection
        self._advance(run, Attempt(connection.replica.url, answer, f"status_{status}", result, status == 200))

    def _forward(self, run: RunningCall, answer: ReplicaAnswer) -> bool:
        """Whether forwarding ends at once, with :attr:`_pause`."""
        run.forwarded = answer
        connection = run.answers[id(answer)]
        if answer.status != 200:
            self._pause: object = Pause.ENDED
            run.client_bytes = len(run.expected)  # the client has the engine's error
            return True
        arrived = run.arrived.pop(connection, [])
        while arrived:
            piece = arrived.pop(0)
            if isinstance(piece, bool):
                self._pause = Pause.ENDED if piece else Break(BreakCause.CLOSED)
                return True
            if self._pass_on(run, piece):
                run.arrived[connection] = arrived
                self._pause = Pause.MAY_MOVE
                return True
        if connection not in run.connections:
            self._pause = Break(BreakCause.CLOSED)
            return True
        return False

    def _read(self, run: RunningCall, piece: bytes) -> None:
        if self._pass_on(run, piece):
            self._advance(run, Pause.MAY_MOVE)

    def _pass_on(self, run: RunningCall, piece: bytes) -> bool:
        """Give the client what it gets of ``piece``; whether the stream may move."""
        got = run.session.read_piece(piece)
        at = run.client_bytes
        if run.expected[at : at + len(got)] != got:
            raise Violation(f"bytes: call {run.call.number} has {got[:40]!r} at byte {at}")
        run.client_bytes += len(got)
        return run.session.may_move()

    def _fail_attempt(
        self, run: RunningCall, connection: Connection, reason: str, suspicion: Suspicion, *, is_stop: bool,
        broke_off: bool = False,
    ) -> None:  # fmt: skip
        self._close(run, connection)
        run.waiting = None
        handed_over = None
        if run.journal_tokens is not None:
            handed_over = HandedOver(NUMERICS, _encode_tokens(run.journal_tokens), broken=True)
        self._advance(run, Attempt(
            connection.replica.url, unavailable_error("gone"), reason, Result.UNREACHABLE, suspicion=suspicion,
            is_stop=is_stop, broke_off=broke_off, handed_over=handed_over,
        ))  # fmt: skip

    def _lose_connection(self, run: RunningCall, connection: Connection, *, hung: bool) -> None:
        """The replica closed the connection, or is hung."""
        connection.is_open = False
        if run.waiting is connection:
            replica = connection.replica
            heard = replica.heard.get(id(self), 0.0)
            silent_before = hung and connection.sent_at > replica.hung_since + QUIET_SECONDS + PROBE_SECONDS
            wait = SeenWait(silent_before, hung, heard >= connection.sent_at + ANSWERED_SECONDS)
            suspicion = suspicion_of(len(run.expected), wait, is_stop=True)
            broke_off = not hung and (run.until_admitted or bool(connection.first))
            self._fail_attempt(
                run, connection, "hung" if hung else "unreachable", suspicion, is_stop=True, broke_off=broke_off
            )
        elif run.forwarded is not None and run.answers.get(id(run.forwarded)) is connection:
            if connection in run.connections:
                run.connections.remove(connection)
            self._advance(run, Break(BreakCause.CLOSED))
        else:
            if connection in run.connections:
                run.connections.remove(connection)
            run.arrived.setdefault(connection, []).append(False)

    def _close(self, run: RunningCall, connection: Connection) -> None:
        connection.is_open = False
        run.arrived.pop(connection, None)
        if connection in run.connections:
            run.connections.remove(connection)

    def _end(self, run: RunningCall, how: str) -> None:
        run.ended = True
        run.session.close()
        request = run.session.request
        del self.live[request]
        if request.in_flight:
            raise Violation(f"attempt: call {run.call.number} has ended, and counts at {request.in_flight}")
        if how == "ended" and run.client_bytes != len(run.expected):
            raise Violation(f"bytes: call {run.call.number} ended at byte {run.client_bytes} of {len(run.expected)}")
        for connection in list(run.connections):
            self._close(run, connection)
        self._on_end(run, how)

    def _run_of(self, connection: Connection) -> RunningCall | None:
        return next((run for run in self.live.values() if connection in run.connections), None)

    # The hand-over of calls without a byte, as proxy/call_hand_over.py has it.

    def _move_calls(self) -> None:
        movable = self.registry.list_movable()
        self._is_moving = bool(movable)
        if not movable:
            return
        for call in movable:
            if call.target is None and (target := self.registry.find_target(call)) is not None:
                self.clock.after(self.clock.draw_delay(), self._ask_for, call, target)
        self.clock.after(HAND_OVER_SECONDS, self._move_calls)

    def _ask_for(self, call: UnansweredCall, target: object) -> None:
        run = self.live.get(call.request)
        connection = None if run is None else run.waiting
        has_it = (
            connection is not None and connection.replica.url == call.url and connection.replica.hand_over(connection)
        )
        if not has_it:
            self.clock.after(self.clock.draw_delay(), self._release, call, target)

    def _release(self, call: UnansweredCall, target: object) -> None:
        if call.target is target and target is not None:
            self.registry.release_target(call)


HANG_SECONDS = QUIET_SECONDS + PROBES * PROBE_SECONDS


def _encode_tokens(tokens: int) -> bytes:
    return b"\n".join(b"[%d]" % number for number in range(tokens))
