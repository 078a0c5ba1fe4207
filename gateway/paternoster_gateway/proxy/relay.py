"""An answer passed on to its client; a stream with a journal goes on at another replica if one breaks it off or drains.

A draining replica goes on with its stream until another one has admitted it: a hand-over that none admits costs the
stream nothing but time. Where that one ends before its next frame, the stream goes on elsewhere as any other does.
"""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Protocol

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_contract.routing import Replica
from paternoster_contract.stream_journal import NOT_CONTINUED
from paternoster_gateway.admission.admission import Admission
from paternoster_gateway.errors import GatewayError, unavailable_error
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.process.access_log import forwarded
from paternoster_gateway.proxy.call import Answer, Attempt, Call
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.proxy.journaled_stream import FrameTooLong, JournaledStream
from paternoster_gateway.proxy.output_tokens import OutputTokens
from paternoster_gateway.proxy.suspicion.suspicion import SuspectedCall, Suspicion
from paternoster_gateway.routing.decisions import Result, RoutedRequest, Send
from paternoster_gateway.routing.limits import MAX_ATTEMPTS
from paternoster_http.errors.refusal import RETRY_AFTER_SECONDS, Refusal

log = logging.getLogger(__name__)

HAND_OVER_SECONDS = 1.0
"""Time between two tries to hand one stream over."""
_NOT_CONTINUED = NOT_CONTINUED.lower().encode()
BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class SendAttempt(Protocol):
    """Sends the call to one replica; ``until_admitted``: waits for the headers of the answer alone."""

    async def __call__(
        self,
        request: RoutedRequest,
        replica: Replica,
        call: Call,
        admission: Admission,
        *,
        until_admitted: bool = False,
    ) -> Attempt: ...


class AnswerRelay:
    """Passes the answer to one call on."""

    def __init__(
        self,
        request: RoutedRequest,
        call: Call,
        admission: Admission,
        *,
        dispatcher: Dispatcher,
        metrics: GatewayMetrics,
        attempt: SendAttempt,
        suspected: SuspectedCall,
        is_cause: Callable[[RoutedRequest, SuspectedCall], Awaitable[bool]],
        quarantine: Callable[[str, Call, Admission], GatewayError],
    ) -> None:
        """``is_cause``: whether the call made replicas stop. ``quarantine``: no replica gets such a call any more."""
        self._request = request
        self._call = call
        self._admission = admission
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._attempt = attempt
        self._suspected = suspected
        self._is_cause = is_cause
        self._quarantine = quarantine
        self._sent_at = 0.0
        """When the replica that goes on with the stream was sent it; seconds of the monotonic clock."""
        self._next_hand_over = 0.0
        """Seconds of the monotonic clock."""

    def relay_answer(self, answer: Answer) -> Answer:
        """``answer``, whose first piece is there, as the client gets it."""
        return replace(answer, chunks=self._relay_pieces(answer))

    async def _relay_pieces(self, answer: Answer) -> AsyncGenerator[bytes]:
        journal = self._open_journal(answer)
        balancer, output = self._dispatcher.balancer, OutputTokens(is_stream=answer.is_stream)
        try:
            while True:
                moved: Answer | None = None
                following: Answer | GatewayError | None = None
                try:
                    async for piece in answer.chunks:
                        if journal is None:
                            if tokens := output.feed(piece):
                                self._dispatcher.count_output(self._request, tokens)
                            if piece:
                                yield piece
                            continue
                        before = journal.num_frames
                        if frames := journal.feed(piece):
                            self._dispatcher.count_output(self._request, journal.num_frames - before)
                            yield frames
                        if journal.replica_drains or answer.replica in balancer.handing_over:
                            moved = await self._hand_over(journal)
                            if moved is not None:
                                break
                    if moved is not None:
                        await answer.discard()
                        answer = moved
                        continue
                    if journal is None or not journal.handed_over:
                        return
                    self._dispatcher.report_result(self._request, answer.replica, Result.NOT_SERVING)
                except Refusal as error:
                    following = unavailable_error(str(error), RETRY_AFTER_SECONDS)
                    error.with_traceback(None)  # as in _record_break
                except FrameTooLong as error:
                    self._record_break(answer, error)
                    following = _describe_break(f"The replica sent {error}.")
                except BROKEN as error:
                    self._record_break(answer, error)
                    if not answer.is_stream:
                        self._metrics.broken.labels(self._metrics.label_of(self._request.model)).inc()
                        raise
                await answer.discard()
                following = following or await self._continue_stream(answer, journal)
                if isinstance(following, GatewayError):
                    yield b"\n\n" * (journal is None) + self._end_in_error(following)
                    return
                answer = following
        finally:
            if journal is not None:
                journal.drop_buffers()
            self._dispatcher.count_output(self._request, output.count_final())
            self._dispatcher.end_request(self._request)
            await answer.discard()

    def _open_journal(self, answer: Answer) -> JournaledStream | None:
        """The reader of a stream with a journal; None for any other answer."""
        journal = None
        if answer.numerics is not None:
            journal = JournaledStream(answer.numerics, self._call.open_request, answer.journal)
        answer.journal = b""
        self._call.open_request.hold_answer("journal", 0)
        return journal

    def _end_in_error(self, error: GatewayError) -> bytes:
        """The event that ends the stream."""
        self._metrics.broken.labels(self._metrics.label_of(self._request.model)).inc()
        if (details := forwarded.get()) is not None:
            details.error_event_code = error.status
        return error.encode_event(self._call.path)

    def _record_break(self, answer: Answer, error: Exception) -> None:
        self._dispatcher.report_result(self._request, answer.replica, Result.BROKEN)
        log.warning("%s broke off an answer: %s", answer.replica, error_text(error))
        # Its frames hold the answer, which holds the error: a cycle for the garbage collector.
        error.with_traceback(None)

    def _record_stop(self, url: str, journal: JournaledStream) -> None:
        """A stream with frames of its replica is no suspect: the replica that goes on with it shows whether it is."""
        if not journal.is_suspected:
            self._suspected.clear_stops()
        now = time.monotonic()
        self._suspected.record_stop(url, now, suspected=journal.is_suspected, seconds=now - self._sent_at)

    def _record_closed(self, url: str, attempt: Attempt) -> None:
        """The replica closed the connection before it went on with the stream."""
        suspected, now = attempt.broke_off or attempt.suspicion is not Suspicion.NONE, time.monotonic()
        self._suspected.record_stop(url, now, suspected=suspected, closed=True, seconds=now - self._sent_at)

    async def _continue_stream(self, answer: Answer, journal: JournaledStream | None) -> Answer | GatewayError:
        """The rest of the stream from another replica, or the error that ends it."""
        broken = _describe_break("The replica broke off its answer.")
        if journal is None:
            return broken
        reason = "handed_over" if journal.handed_over else "broken"
        if journal.step_failed or not journal.handed_over:
            self._record_stop(answer.replica, journal)
            if await self._is_cause(self._request, self._suspected):
                return self._quarantine(answer.replica, self._call, self._admission)
        may_continue = journal.can_continue
        journal.switch_replica()
        if not may_continue:
            return broken
        following = await self._find_continuation(answer.replica, journal)
        self._call.open_request.hold_answer("journal", 0)
        if following is None:
            return broken
        if isinstance(following, Answer):
            self._metrics.continued.labels(self._metrics.label_of(self._request.model), reason).inc()
        return following

    async def _hand_over(self, journal: JournaledStream) -> Answer | None:
        """The rest of the stream from another replica; None where it stays at the draining one for now."""
        now = time.monotonic()
        if now < self._next_hand_over or not journal.can_continue:
            return None
        self._next_hand_over = now + HAND_OVER_SECONDS
        try:
            decision = self._dispatcher.route_hand_over(self._request, self._admission)
        except GatewayError:
            return None  # the client may begin nothing any more; the stream was admitted
        if decision is None:
            return None
        url = decision.replica.url
        if (call := self._build_resumption(journal)) is None:
            self._dispatcher.end_attempt(self._request, url)
            return None
        attempt = await self._attempt(self._request, decision.replica, call, self._admission, until_admitted=True)
        self._call.open_request.hold_answer("journal", 0)
        if not isinstance(attempt.outcome, Answer) or attempt.outcome.numerics != journal.numerics:
            log.warning("%s does not go on with a stream of a draining replica", url)
            await attempt.discard()
            return None
        self._sent_at = now
        journal.switch_replica()
        self._dispatcher.balancer.on_hand_over(self._request, url)
        self._metrics.continued.labels(self._metrics.label_of(self._request.model), "drained").inc()
        return attempt.outcome

    def _build_resumption(self, journal: JournaledStream) -> Call | None:
        """The call as the next replica gets it; None where there is no room for a copy of the journal."""
        call = journal.build_resumption(self._call)
        try:
            self._call.open_request.hold_answer("journal", len(call.journal))
        except Refusal:
            return None
        return call

    async def _find_continuation(self, url: str, journal: JournaledStream) -> Answer | GatewayError | None:
        """The answer of the next replica that goes on; the error of a call in quarantine; None where none goes on."""
        if (call := self._build_resumption(journal)) is None:
            return None
        self._dispatcher.balancer.begin_continuation(self._request, url)
        for _ in range(MAX_ATTEMPTS):
            try:
                decision = await self._dispatcher.route(self._request, self._admission)
            except GatewayError as error:
                log.warning("no replica goes on with a stream: %s", error)
                return None
            assert isinstance(decision, Send), "a continuation is routed as a new request is"
            self._sent_at = time.monotonic()
            attempt = await self._attempt(self._request, decision.replica, call, self._admission)
            if isinstance(outcome := attempt.outcome, GatewayError):
                log.warning("%s does not go on with a stream: %s", decision.replica.url, outcome)
            elif outcome.numerics == journal.numerics:
                return outcome
            else:
                log.warning("%s does not go on with a stream: status %d", decision.replica.url, outcome.status)
                await outcome.discard()
                if outcome.status == 400 and (cause := dict(outcome.headers).get(_NOT_CONTINUED)):
                    return _describe_break(f"The replica broke off its answer, and none continues {cause.decode()}.")
            if attempt.closed_connection:
                self._record_closed(decision.replica.url, attempt)
                if await self._is_cause(self._request, self._suspected):
                    return self._quarantine(decision.replica.url, self._call, self._admission)
            self._dispatcher.balancer.route_anew(self._request)
        return None


def _describe_break(message: str) -> GatewayError:
    return GatewayError(502, "BadGatewayError", message)
