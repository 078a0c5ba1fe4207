"""Forward a request's body to a replica and its answer to the client, without parsing them.

Until the first byte of the answer a failed attempt can be repeated at another replica; after it :mod:`.relay` lets
another one go on with a stream that has a journal, and of other answers the client gets the failure.
:mod:`paternoster_gateway.routing.balancer` decides whether and where; the proxy classifies what an attempt came to. A
refusal is no failure: an engine whose queue is full answers at once, and one more attempt is more load.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from functools import partial

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_contract.http.headers import DIED, NOT_SERVING, ROUTING
from paternoster_contract.routing import Replica
from paternoster_contract.stream_journal import JOURNAL, RESUME
from paternoster_gateway.admission.admission import Admission
from paternoster_gateway.admission.quarantine import Quarantine, digest_of, quarantine_error
from paternoster_gateway.errors import GatewayError, keys_refused, unavailable_error
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.proxy.answer_progress import AnswerProgress, EngineResponse, count_head, result_of
from paternoster_gateway.proxy.body import rename_in_answer
from paternoster_gateway.proxy.call import Answer, Attempt, Call, HandedOver
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.proxy.headers import (
    EVENT_STREAM,
    answer_headers,
    is_status_of_engine,
    media_type_of,
    prompt_tokens_of,
)
from paternoster_gateway.proxy.journaled_stream import MAX_CONTINUATIONS, JournaledStream
from paternoster_gateway.proxy.liveness import PROBE_SECONDS, Liveness, Wait
from paternoster_gateway.proxy.prompt import read_prompt
from paternoster_gateway.proxy.relay import AnswerRelay
from paternoster_gateway.proxy.replica_client import ReplicaClient
from paternoster_gateway.proxy.suspicion.probation import Probation, Turn
from paternoster_gateway.proxy.suspicion.suspicion import (
    LONG_BODY,
    ReplicaStops,
    SuspectedCall,
    Suspicion,
    is_stop,
    suspicion_of,
)
from paternoster_gateway.proxy.unanswered import UnansweredCalls, read_journal
from paternoster_gateway.routing.decisions import Result, Retry, RoutedRequest, Send
from paternoster_gateway.routing.prefix_routing import Prompt
from paternoster_gateway.sent_keys import SentKeys
from paternoster_http.start_turns import StartTurns

log = logging.getLogger(__name__)

HANDED_OVER = frozenset({500, 503})
"""Statuses of a call that another replica is to go on with: a step failed, or the replica ends."""
LONG_PIECE = 2**14
"""Bytes of an answer that came at once: of longer pieces a few are read in one iteration of the event loop."""


class Proxy:
    """Sends calls to replicas."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        metrics: GatewayMetrics,
        keys: SentKeys,
        liveness: Liveness,
        quarantine: Quarantine,
    ) -> None:
        self._dispatcher = dispatcher
        self._liveness = liveness
        self._quarantine = quarantine
        self._stops = ReplicaStops()
        self._probation = Probation()
        self._metrics = metrics
        self._long_pieces = StartTurns()
        self._client = ReplicaClient(keys, lambda url: dispatcher.balancer.table.health_path(url))
        self.unanswered = UnansweredCalls(dispatcher, self._client.call_briefly)

    async def open_session(self) -> None:
        await self._client.open_session()

    async def answers_probe(self, url: str, seconds: float) -> bool:
        """Whether the replica at ``url`` answers a health probe within ``seconds``, with any status below 500."""
        return await self._client.answers_probe(url, seconds)

    async def close(self) -> None:
        await self._liveness.close()
        await self.unanswered.close()
        await self._client.close()

    def hand_streams_over(self) -> None:
        """Begin to move what draining replicas have, now that the routing table has changed."""
        self.unanswered.on_table_change()
        for url in self._dispatcher.balancer.handing_over:
            self._liveness.interrupt_waits(url)

    async def send(self, call: Call, admission: Admission, on_admission: Callable[[], object]) -> Answer:
        """The answer of a replica; raises :class:`GatewayError` where there is none.

        ``on_admission`` is called before the first decision that may hold the call, or send it.
        """
        turn = admission.queue_turn(call.priority, len(call.body), call.deadline_seconds)
        request = self._dispatcher.open_request(admission, await self._read_prompt(call, admission), turn)
        suspected = SuspectedCall(self._stops, admission.fleet, lambda: _digest_body(call, admission))
        alone = Turn(self._probation, admission.fleet)
        relay = AnswerRelay(
            request, call, admission, dispatcher=self._dispatcher, metrics=self._metrics, attempt=self._run_attempt,
            suspected=suspected, is_cause=self._is_cause, quarantine=self._put_in_quarantine,
        )  # fmt: skip
        on_admission()
        try:
            return relay.relay_answer(await self._send(request, call, admission, suspected, alone))
        except BaseException:
            self._dispatcher.end_request(request)
            raise
        finally:
            alone.end_turn()

    async def _read_prompt(self, call: Call, admission: Admission) -> Prompt | None:
        """The text of ``call``, where it decides between replicas."""
        isolates = self._dispatcher.isolates_tenants(admission.model)
        if isolates is None:
            return None
        tenant = "" if admission.identity is None or not isolates else admission.identity.tenant
        return await read_prompt(call, admission.model, tenant)

    async def _send(
        self, request: RoutedRequest, call: Call, admission: Admission, suspected: SuspectedCall, alone: Turn
    ) -> Answer:
        self._refuse_quarantined(call, admission)
        sent, moves = call, 0
        decision = await self._dispatcher.route(request, admission)
        assert isinstance(decision, Send), "a new request has no result to return"
        replica = decision.replica
        while True:
            self._refuse_quarantined(call, admission)  # the same body may have been in flight at another replica
            with self.unanswered.await_first_byte(request, replica.url, call, admission) as waiting:
                alone.start_timer()
                attempt = await self._run_attempt(request, replica, sent, admission)
            alone.end_turn()
            if (handed := attempt.handed_over) is not None and moves < MAX_CONTINUATIONS:
                target, following_call = self.unanswered.take_target(waiting), handed.build_resumption(call)
                moves = moves + 1 if len(following_call.journal) <= len(sent.journal) else 1
                sent = following_call
                if (handed.failed or handed.broken) and await self._is_blamed(replica.url, attempt, request, suspected):
                    raise self._put_in_quarantine(replica.url, call, admission)
                reason = "drained" if target else "broken" if handed.broken else "handed_over"
                self._metrics.continued.labels(self._metrics.label_of(request.model), reason).inc()
                if target is None and not handed.broken:
                    self._dispatcher.report_result(request, replica.url, Result.NOT_SERVING)
                    if suspected.is_suspect:
                        await alone.begin_turn()
                replica = target or await self._route_anew(request, replica.url, admission)
                continue
            self.unanswered.release_target(waiting)
            if sent is not call and attempt.refuses_journal:
                await attempt.discard()
                replica, sent = await self._route_anew(request, replica.url, admission), call
                continue
            if await self._is_blamed(replica.url, attempt, request, suspected):
                raise self._put_in_quarantine(replica.url, call, admission)
            try:
                if suspected.is_suspect:
                    await alone.begin_turn()
                following = await self._next_replica(request, admission)
            except BaseException:
                await attempt.discard()
                raise
            if following is None:
                if isinstance(attempt.outcome, GatewayError):
                    raise attempt.outcome
                attempt.outcome.journal = sent.journal
                return attempt.outcome
            await attempt.discard()
            self._metrics.retries.labels(attempt.reason).inc()
            replica = following

    async def _route_anew(self, request: RoutedRequest, url: str, admission: Admission) -> Replica:
        """Another replica for a request that the one at ``url`` does not go on with, once there is one."""
        self._dispatcher.balancer.begin_continuation(request, url)
        decision = await self._dispatcher.route(request, admission)
        assert isinstance(decision, Send), "a continuation is routed as a new request is"
        return decision.replica

    def _refuse_quarantined(self, call: Call, admission: Admission) -> None:
        now = time.monotonic()
        if self._quarantine.count(now) and self._quarantine.contains(_digest_body(call, admission), now):
            self._metrics.quarantined.inc()
            raise quarantine_error(call.model)

    async def _is_blamed(self, url: str, attempt: Attempt, request: RoutedRequest, suspected: SuspectedCall) -> bool:
        """Whether the call is why replicas stopped, the one of ``attempt`` included."""
        failed = attempt.handed_over is not None and attempt.handed_over.failed
        if attempt.handed_over is not None and attempt.handed_over.broken:
            suspected.clear_stops()  # the replica computed tokens of it: the next one shows whether it is why
        if failed or attempt.is_stop:
            suspected.record_stop(
                url, time.monotonic(), suspected=failed or attempt.suspicion is not Suspicion.NONE,
                closed=attempt.closed_connection,
            )  # fmt: skip
        return attempt.suspicion is Suspicion.CERTAIN or await self._is_cause(request, suspected)

    async def _is_cause(self, request: RoutedRequest, suspected: SuspectedCall) -> bool:
        """Whether the call is why replicas stopped, of which those that answer a probe did not stop."""
        if not suspected.is_suspect:
            return False
        await asyncio.sleep(0)  # the other calls that the replica had record the stop, too
        answers = await asyncio.gather(*(self.answers_probe(url, PROBE_SECONDS) for url in suspected.closed))
        suspected.acquit_replicas([url for url, answered in zip(suspected.closed, answers, strict=True) if answered])
        return suspected.is_blamed(self._dispatcher.count_replicas(request.model), time.monotonic())

    def _put_in_quarantine(self, url: str, call: Call, admission: Admission) -> GatewayError:
        """The error for a client whose call made the replica at ``url`` stop; no other one gets such a call."""
        self._quarantine.add(_digest_body(call, admission), time.monotonic(), admission.namespace)
        log.warning(
            "%s stopped while it had a request to %s of %d bytes: it is sent to no other replica",
            url, call.path, len(call.body),
        )  # fmt: skip
        self._metrics.quarantined.inc()
        return quarantine_error(call.model)

    async def _next_replica(self, request: RoutedRequest, admission: Admission) -> Replica | None:
        """The replica for a retry, once there is one; None where the result of the last attempt is the client's."""
        if request.retry is Retry.NONE:
            return None
        decision = await self._dispatcher.route(request, admission)
        if isinstance(decision, Send):
            return decision.replica
        if decision.budget_exhausted:
            self._metrics.retries_denied.inc()
        return None

    async def _run_attempt(
        self,
        request: RoutedRequest,
        replica: Replica,
        call: Call,
        admission: Admission,
        *,
        until_admitted: bool = False,
    ) -> Attempt:
        """Send ``call`` to ``replica``, wait for the first piece of the answer and report what came of it.

        ``until_admitted``: wait for its headers alone, with which an engine admits a stream that goes on.
        """
        stack, number = AsyncExitStack(), len(request.tried)
        stack.callback(self._dispatcher.end_attempt, request, replica.url)
        progress = AnswerProgress(call)
        header_wait: Wait | None = None  # for the headers, which come after the body was read and checked
        try:
            with self._liveness.expect_bytes(replica.url) as header_wait:
                sent = await self._client.post(replica, call, admission)
                response: EngineResponse = await stack.enter_async_context(sent)
            header_wait = None
            if progress.comes_in(response):
                response = await progress.read_answer(response, partial(self._await_piece, replica, admission))
            count_head(response, call)
            if response.status == 401:
                await stack.aclose()
                log.warning("%s at %s refused the gateway's key: not of its fleet's root", replica.name, replica.url)
                self._dispatcher.report_result(request, replica.url, Result.NOT_THE_ENGINE)
                return Attempt(keys_refused(call.model, number), "status_401")
            if not is_status_of_engine(response.status):
                await stack.aclose()
                log.warning("%s answered with status %d, which no engine does", replica.url, response.status)
                self._dispatcher.report_result(request, replica.url, Result.NOT_THE_ENGINE)
                message = f"A replica of `{call.model}` answered with a status that no engine has."
                return Attempt(GatewayError(502, "BadGatewayError", message), "bad_status")
            numerics = response.headers.get(JOURNAL)
            if response.status in HANDED_OVER and numerics is not None and JournaledStream.can_begin(numerics):
                journal = await read_journal(
                    partial(self._await_piece, replica, admission, response), call.open_request
                )
                await stack.aclose()
                handed_over = HandedOver(numerics, journal, failed=response.status == 500)
                error = unavailable_error("The replica ends, or a step of it failed.", 1)
                return Attempt(error, "not_serving", handed_over=handed_over)
            result = result_of(response)
            report = partial(self._report_answer, request, replica, call, admission, response)
            first = None
            if not (until_admitted and result is Result.ANSWERED):
                # The first piece belongs to the attempt: an engine that dies before it can be replaced.
                first = await self._await_piece(replica, admission, response)
                report()
            chunks = self._stream_body(replica, admission, response, first, stack, report)
            chunks = rename_in_answer(chunks, replica.upstream_model, admission.model)
            headers, is_stream = answer_headers(response.raw_headers), media_type_of(response.headers) == EVENT_STREAM
            if call.debug:
                headers.append((ROUTING.lower().encode(), self._routing_of(request, replica).encode()))
            answer = Answer(response.status, headers, chunks, replica.url, number, stack, is_stream=is_stream)
            if is_stream and response.status == 200 and JournaledStream.can_begin(numerics):
                answer.numerics = numerics
            if result is not Result.NOT_SERVING:
                return Attempt(answer, f"status_{response.status}")
            died = response.headers[NOT_SERVING] == DIED
            return Attempt(answer, "not_serving", Suspicion.POSSIBLE if died else Suspicion.NONE, is_stop=died)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await stack.aclose()
            log.warning("%s did not answer: %s", replica.url, error_text(error))
            self._dispatcher.report_result(request, replica.url, Result.UNREACHABLE)
            reason = "hung" if replica.url in self._liveness.hung else "unreachable"
            message = f"{number} replicas of `{call.model}` did not answer."
            suspected = Suspicion.NONE if header_wait is None else suspicion_of(len(call.body), error, header_wait)
            broke_off = header_wait is None and not isinstance(error, TimeoutError)
            return Attempt(
                unavailable_error(message, 1), reason, suspected, is_stop(error), broke_off, progress.build_hand_over()
            )
        except BaseException:
            await stack.aclose()
            left_early = header_wait is not None and not (header_wait.silent_before or header_wait.answered)
            if header_wait is not None and left_early and len(call.body) > LONG_BODY:
                digest = _digest_body(call, admission)
                self._quarantine.add_left(replica.url, digest, header_wait.read_by, admission.namespace)
            raise
        finally:
            progress.drop_journal()

    def _report_answer(
        self, request: RoutedRequest, replica: Replica, call: Call, admission: Admission, response: EngineResponse
    ) -> None:
        """The first piece of an answer has come."""
        served = response.status == 200
        tokens = prompt_tokens_of(response.headers) if served and RESUME not in call.headers else None
        result = result_of(response)
        self._dispatcher.report_result(request, replica.url, result, served=served, tokens=tokens)
        if request.pick is not None and tokens is not None:
            pick = request.pick
            stages = {"promised": pick.promised_tokens, "captured": pick.held.tokens, "delivered": tokens.cached}
            self._metrics.count_cached_tokens(admission.model, tokens.prompt, stages)

    def _routing_of(self, request: RoutedRequest, replica: Replica) -> str:
        """The value of :data:`ROUTING`: clients get no name of a pod, but its number among those of its fleet."""
        row, pick = self._dispatcher.balancer.table.models.get(request.model), request.pick
        urls = [] if row is None else [each.url for each in sorted(row.replicas, key=lambda each: each.name)]
        number = urls.index(replica.url) if replica.url in urls else "gone"
        if pick is None:
            return f"replica={number}, by=load"
        return (
            f"replica={number}, by=prefix, candidates={pick.candidates}, promised={pick.promised_tokens}, "
            f"captured={pick.held.tokens}, seconds={pick.seconds:.4f}"
        )

    async def _stream_body(
        self,
        replica: Replica,
        admission: Admission,
        response: EngineResponse,
        first: bytes | None,
        stack: AsyncExitStack,
        report: Callable[[], None],
    ) -> AsyncGenerator[bytes]:
        """``first``: the first piece, where it was read; else it is awaited, and ``report`` called behind it.

        An empty piece comes where the stream may be handed over and has no byte.
        """
        async with stack:
            try:
                if (chunk := first) is None:
                    while (chunk := await self._read_piece(replica, admission, response)) is None:
                        yield b""
                    report()
                while chunk:
                    yield chunk
                    while (chunk := await self._read_piece(replica, admission, response)) is None:
                        yield b""
            except (GeneratorExit, asyncio.CancelledError):
                # The client has left: closing the connection ends the request at the engine.
                response.close()
                raise

    async def _read_piece(self, replica: Replica, admission: Admission, response: EngineResponse) -> bytes | None:
        """The next piece, empty at the end; None where :meth:`hand_streams_over` came first."""
        try:
            return await self._await_piece(replica, admission, response, interruptible=True)
        except TimeoutError:
            if replica.url in self._liveness.hung:
                raise
            return None

    async def _await_piece(
        self, replica: Replica, admission: Admission, response: EngineResponse, *, interruptible: bool = False
    ) -> bytes:
        """The next piece, empty at the end; a long one once it is its party's turn."""
        with self._liveness.expect_bytes(replica.url, interruptible=interruptible):
            piece = await response.content.readany()
        if len(piece) > LONG_PIECE:
            await self._long_pieces.wait_turn(admission.party)
        return piece


def _digest_body(call: Call, admission: Admission) -> bytes:
    tenant = "" if admission.identity is None else admission.identity.tenant
    return digest_of(admission.fleet, tenant, call.path, call.body)
