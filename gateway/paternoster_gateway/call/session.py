"""One call from its admission to the end of its answer; pure.

Until the client has a byte, a failed attempt can be repeated at another replica: :mod:`paternoster_gateway.routing`
decides whether and where. After it another one goes on with a stream that has a journal; of other answers the client
gets the failure. A refusal is no failure: an engine whose queue is full answers at once, and one more attempt is more
load. A draining replica goes on with its stream until another one has admitted it: a hand-over that none admits costs
the stream nothing but time.
"""

import re

from paternoster_contract.request_phases import RequestPhases
from paternoster_contract.routing import Replica
from paternoster_contract.stream_journal import NOT_CONTINUED
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.call.actions import (
    Abort,
    Action,
    AwaitTurn,
    Break,
    BreakCause,
    Discard,
    EndInError,
    Forward,
    Hold,
    Pause,
    StartAttempt,
    Steps,
)
from paternoster_gateway.call.attempt import Attempt, ReplicaAnswer
from paternoster_gateway.call.blame import CallBlame
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.journaled_stream import MAX_CONTINUATIONS, JournaledStream
from paternoster_gateway.call.probation import PROBATION_SECONDS
from paternoster_gateway.call.registry import SessionRegistry, UnansweredCall
from paternoster_gateway.errors import GatewayError, unavailable_error
from paternoster_gateway.routing.decisions import Queue, Result, Retry, RoutedRequest, Send
from paternoster_gateway.routing.limits import HAND_OVER_SECONDS, MAX_ATTEMPTS
from paternoster_http.errors.refusal import RETRY_AFTER_SECONDS, Refusal

_NOT_CONTINUED = NOT_CONTINUED.lower().encode()


class CallSession:
    """Decides what is done for one call: a driver carries out each action, and :meth:`advance` has the next one."""

    def __init__(
        self, registry: SessionRegistry, call: Call, admission: ClientAdmission, request: RoutedRequest
    ) -> None:
        self.request = request
        self.admission = admission
        self._call = call
        self._registry = registry
        self._router = registry.router
        self._blame = CallBlame(registry, call, admission, request)
        self._journal: JournaledStream | None = None
        """Journal of the stream that is forwarded, where it has one."""
        self._output = OutputTokens(is_stream=False)
        self._replica = ""
        """URL of the replica whose answer is forwarded."""
        self._unreported: Attempt | None = None
        """The attempt that goes on with a stream and has sent no piece of it."""
        self._sent_at = 0.0
        """Time at which the replica that goes on with the stream was sent it; seconds of the router's clock."""
        self._next_hand_over = 0.0
        """Seconds of the router's clock."""
        self._steps = self._run()

    def advance(self, event: object = None) -> Action | None:
        """The next action, after ``event`` of the one before; None at the end.

        Raises :class:`GatewayError` where the client gets that in place of an answer; not behind a :class:`Forward`.
        """
        try:
            return self._steps.send(event)
        except StopIteration:
            return None

    def close(self) -> None:
        """The client has left, or the session has ended; more than once has no effect."""
        self._steps.close()

    def end_turn(self) -> None:
        """Let the next suspect of the fleet be sent."""
        self._registry.probation.end_turn(self.request)

    def record_left(self, url: str, read_by: float) -> None:
        """The client left before the replica at ``url`` sent headers; ``read_by`` is as in :class:`Quarantine`."""
        self._blame.record_left(url, read_by)

    def read_piece(self, piece: bytes) -> bytes:
        """The bytes for the client of the next piece of the answer that is forwarded; an empty piece has none.

        Raises :class:`FrameTooLong`, and :class:`Refusal` where there is no room for what is not whole.
        """
        if self._unreported is not None and piece:
            self._report_result(self._unreported)
        journal = self._journal
        if journal is None:
            if tokens := self._output.feed(piece):
                self._router.count_output(self.request, tokens)
            return piece
        before = journal.num_frames
        if frames := journal.feed(piece):
            self._router.count_output(self.request, journal.num_frames - before)
        return frames

    @property
    def phases(self) -> RequestPhases | None:
        """Parts of the stream's time at its last replica, once that has made the last frame."""
        return None if self._journal is None else self._journal.phases

    def may_move(self) -> bool:
        """Whether the stream that is forwarded is a draining replica's, and another one may go on with it now."""
        journal = self._journal
        return (
            journal is not None
            and (journal.replica_drains or self._replica in self._router.balancer.handing_over)
            and self._router.clock() >= self._next_hand_over
            and journal.can_continue
        )

    def _run(self) -> Steps[None]:
        try:
            answer = yield from self._find_answer()
            self.end_turn()
            yield from self._forward(answer)
        finally:
            self.end_turn()
            if self._journal is not None:
                self._journal.drop_buffers()
            self._router.count_output(self.request, self._output.count_final())
            self._router.end_request(self.request)

    def _find_answer(self) -> Steps[ReplicaAnswer]:
        """The first answer that is the client's; raises :class:`GatewayError` where there is none."""
        self._blame.refuse_quarantined()
        sent, moves = self._call, 0
        replica = yield from self._route()
        while True:
            self._blame.refuse_quarantined()  # the same body may have been in flight at another replica
            waiting = UnansweredCall(self.request, replica.url, sent, self.admission)
            self._registry.add_unanswered(waiting)
            try:
                attempt: Attempt = yield StartAttempt(replica, sent, seconds_alone=self._seconds_alone)
                self._record_attempt(attempt)
            finally:
                self._registry.remove_unanswered(waiting)
            self.end_turn()
            if (handed := attempt.handed_over) is not None and moves < MAX_CONTINUATIONS:
                target, following_call = self._registry.take_target(waiting), handed.build_resumption(self._call)
                moves = moves + 1 if len(following_call.journal) <= len(sent.journal) else 1
                sent = following_call
                if (handed.failed or handed.broken) and (yield from self._blame.is_blamed(attempt)):
                    raise self._blame.quarantine_call(attempt.url)
                reason = "drained" if target else "broken" if handed.broken else "handed_over"
                self._registry.observer.on_continued(self.request, reason)
                if target is None and not handed.broken:
                    self._router.report_result(self.request, attempt.url, Result.NOT_SERVING)
                    yield from self._begin_turn()
                replica = target or (yield from self._route_anew(attempt.url))
                continue
            self._registry.release_target(waiting)
            if sent is not self._call and attempt.refuses_journal:
                yield from self._discard(attempt)
                replica, sent = (yield from self._route_anew(attempt.url)), self._call
                continue
            if (handed or attempt.is_stop) and (yield from self._blame.is_blamed(attempt)):
                raise self._blame.quarantine_call(attempt.url)
            following = yield from self._next_replica()
            if following is None:
                if isinstance(attempt.outcome, GatewayError):
                    raise attempt.outcome
                attempt.outcome.journal = sent.journal
                return attempt.outcome
            yield from self._discard(attempt)
            self._registry.observer.on_retry(attempt.reason)
            replica = following

    def _forward(self, answer: ReplicaAnswer) -> Steps[None]:
        """Pass ``answer`` on, and what other replicas add to it."""
        self._open_journal(answer)
        while True:
            self._replica = answer.replica
            event = yield Forward(answer)
            if event is Pause.MAY_MOVE:
                if (moved := (yield from self._hand_over())) is not None:
                    yield from self._close_answer(answer)
                    answer = moved
                continue
            following: GatewayError | None = None
            result: Result | None = Result.NOT_SERVING
            if isinstance(event, Break):
                if event.cause is BreakCause.CLOSED and not answer.is_stream:
                    self._router.report_result(self.request, answer.replica, Result.BROKEN)
                    self._registry.observer.on_broken(self.request)
                    yield Abort()
                    return
                following, result = _read_break(event), None if event.cause is BreakCause.NO_ROOM else Result.BROKEN
            elif self._journal is None or not self._journal.handed_over:
                return
            yield from self._close_answer(answer, result)
            rest = following or (yield from self._continue_stream(answer))
            if isinstance(rest, GatewayError):
                self._registry.observer.on_broken(self.request)
                yield EndInError(rest, within_frame=self._journal is None)
                return
            answer = rest

    def _continue_stream(self, answer: ReplicaAnswer) -> Steps[ReplicaAnswer | GatewayError]:
        """The rest of the stream from another replica, or the error that ends it."""
        broken, url = _describe_break("The replica broke off its answer."), answer.replica
        if (journal := self._journal) is None:
            return broken
        reason = "handed_over" if journal.handed_over else "broken"
        failed = journal.step_failed or not journal.handed_over
        if failed and (yield from self._blame.judge_break(url, self._sent_at, suspected=journal.is_suspected)):
            return self._blame.quarantine_call(url)
        if not journal.can_continue:
            return broken
        journal.switch_replica()
        try:
            call = journal.build_resumption(self._call)
        except Refusal:
            following = None
        else:
            following = yield from self._find_continuation(url, call, journal.numerics)
        self._call.open_request.hold_answer("journal", 0)
        if isinstance(following, ReplicaAnswer):
            self._registry.observer.on_continued(self.request, reason)
        return following or broken

    def _find_continuation(self, url: str, call: Call, numerics: str) -> Steps[ReplicaAnswer | GatewayError | None]:
        """The answer of the next replica that goes on; the error of a call in quarantine; None where none goes on."""
        self._router.balancer.begin_continuation(self.request, url)
        for _ in range(MAX_ATTEMPTS):
            yield from self._begin_turn()
            try:
                replica = yield from self._route()
            except GatewayError as error:
                self.end_turn()
                self._registry.observer.on_not_continued("", error)
                return None
            self._sent_at = self._router.clock()
            attempt: Attempt = yield StartAttempt(replica, call, seconds_alone=self._seconds_alone)
            self._record_attempt(attempt)
            self.end_turn()
            if isinstance(outcome := attempt.outcome, GatewayError):
                self._registry.observer.on_not_continued(replica.url, outcome)
            elif outcome.numerics == numerics:
                return outcome
            else:
                self._registry.observer.on_not_continued(replica.url, f"status {outcome.status}")
                yield from self._close_answer(outcome)
                if outcome.status == 400 and (cause := dict(outcome.headers).get(_NOT_CONTINUED)):
                    return _describe_break(f"The replica broke off its answer, and none continues {cause.decode()}.")
            if attempt.closed_connection and (yield from self._blame.judge_closed(attempt, self._sent_at)):
                return self._blame.quarantine_call(replica.url)
            self._router.balancer.route_anew(self.request)
        return None

    def _hand_over(self) -> Steps[ReplicaAnswer | None]:
        """The rest of the stream from another replica; None where it stays at the draining one for now."""
        journal, now = self._journal, self._router.clock()
        assert journal is not None, "only a stream with a journal may move"
        self._next_hand_over = now + HAND_OVER_SECONDS
        try:
            decision = self._router.route_hand_over(self.request, self.admission)
        except GatewayError:
            return None  # the client may begin nothing any more; the stream was admitted
        if decision is None:
            return None
        replica = decision.replica
        try:
            call = journal.build_resumption(self._call)
        except Refusal:
            self._router.end_attempt(self.request, replica.url)
            return None
        attempt = yield StartAttempt(replica, call, until_admitted=True, seconds_alone=self._seconds_alone)
        self._record_attempt(attempt, until_admitted=True)
        self._call.open_request.hold_answer("journal", 0)
        outcome = attempt.outcome
        if not isinstance(outcome, ReplicaAnswer) or outcome.numerics != journal.numerics:
            self._registry.observer.on_not_continued(replica.url, "it drains, and no other one has it")
            yield from self._discard(attempt)
            return None
        self._sent_at = now
        journal.switch_replica()
        self._router.balancer.on_hand_over(self.request, replica.url)
        self._registry.observer.on_continued(self.request, "drained")
        return outcome

    @property
    def _seconds_alone(self) -> float | None:
        """Time for which an attempt that begins now has its turn."""
        has_turn = self._blame.is_suspect and self._registry.probation.has_turn(self.request)
        return PROBATION_SECONDS if has_turn else None

    def _record_attempt(self, attempt: Attempt, *, until_admitted: bool = False) -> None:
        """Report the result of an attempt, and its end where it has no answer."""
        if not isinstance(attempt.outcome, ReplicaAnswer):
            self._router.end_attempt(self.request, attempt.url)
        if until_admitted and attempt.result is Result.ANSWERED:
            self._unreported = attempt
        else:
            self._report_result(attempt)

    def _route(self) -> Steps[Replica]:
        """The replica for a request that has no result to return, once there is one."""
        decision = yield from self._decide()
        assert decision is not None, "only a retry has a result to return"
        return decision

    def _route_anew(self, url: str) -> Steps[Replica]:
        """Another replica for a request that the one at ``url`` does not go on with, once there is one."""
        self._router.balancer.begin_continuation(self.request, url)
        return (yield from self._route())

    def _next_replica(self) -> Steps[Replica | None]:
        """The replica for a retry, once there is one; None where the result of the last attempt is the client's."""
        if self.request.retry is Retry.NONE:
            return None
        yield from self._begin_turn()
        return (yield from self._decide())

    def _decide(self) -> Steps[Replica | None]:
        while isinstance(decision := self._router.decide(self.request, self.admission), Queue):
            yield Hold(decision.until)
        if isinstance(decision, Send):
            return decision.replica
        if decision.budget_exhausted:
            self._registry.observer.on_retry_denied()
        return None

    def _begin_turn(self) -> Steps[None]:
        """Have a call that several replicas stopped with wait for its turn."""
        if self._blame.is_suspect and not self._registry.probation.request_turn(self.request):
            yield AwaitTurn()

    def _discard(self, attempt: Attempt) -> Steps[None]:
        """Close the answer, if there is one: another attempt follows."""
        if isinstance(attempt.outcome, ReplicaAnswer):
            yield from self._close_answer(attempt.outcome)

    def _close_answer(self, answer: ReplicaAnswer, result: Result | None = None) -> Steps[None]:
        """Close ``answer``, and report ``result`` if there is one: that of a broken attempt, which has ended."""
        if result is not None:
            self._router.report_result(self.request, answer.replica, result)
        if result is Result.BROKEN:
            self._router.end_attempt(self.request, answer.replica)
        self._unreported = None if self._unreported and self._unreported.url == answer.replica else self._unreported
        yield Discard(answer)
        if result is not Result.BROKEN:
            self._router.end_attempt(self.request, answer.replica)

    def _report_result(self, attempt: Attempt) -> None:
        self._unreported = None if attempt is self._unreported else self._unreported
        if attempt.result is None:
            return
        self._router.report_result(
            self.request, attempt.url, attempt.result, served=attempt.served, tokens=attempt.tokens
        )
        if attempt.tokens is not None:
            self._registry.observer.on_prompt_tokens(self.request, attempt.tokens)

    def _open_journal(self, answer: ReplicaAnswer) -> None:
        """Read a stream with a journal by that; the output of any other answer is counted by its bytes."""
        self._output = OutputTokens(is_stream=answer.is_stream)
        if answer.numerics is not None:
            self._journal = JournaledStream(answer.numerics, self._call.open_request, answer.journal)
        answer.journal = b""
        self._call.open_request.hold_answer("journal", 0)


def _read_break(event: Break) -> GatewayError | None:
    """The error that ends the stream; None where another replica may go on with it."""
    if event.cause is BreakCause.NO_ROOM:
        return unavailable_error(event.message, RETRY_AFTER_SECONDS)
    return _describe_break(f"The replica sent {event.message}.") if event.cause is BreakCause.FRAME_TOO_LONG else None


def _describe_break(message: str) -> GatewayError:
    return GatewayError(502, "BadGatewayError", message)


MAX_TAIL = 4096
"""Bytes at the end of an answer in which its usage is searched."""
_EVENT_END = b"\n\n"
_USAGE = re.compile(rb'"(?:completion|output)_tokens"[ \t\n\r]*:[ \t\n\r]*([0-9]{1,7})(?![0-9.eE])')


class OutputTokens:
    """Tokens of an answer by its bytes alone: the events of a stream; of another answer those that its usage states."""

    def __init__(self, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._tail = b""

    def feed(self, data: bytes) -> int:
        """Tokens to charge now that ``data`` has come."""
        if self._is_stream:
            return data.count(_EVENT_END)
        self._tail = (self._tail + data)[-MAX_TAIL:]
        return 0

    def count_final(self) -> int:
        """Tokens to charge at the end of the answer, once."""
        usage = _USAGE.search(self._tail)
        self._tail = b""
        return 0 if usage is None else int(usage[1])
