"""Sends a call to one replica by HTTP, and classifies what came of it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_contract.http.headers import DIED, NOT_SERVING, ROUTING
from paternoster_contract.request_phases import PHASES, RequestPhases
from paternoster_contract.routing import Replica
from paternoster_contract.stream_journal import JOURNAL, RESUME
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.call.actions import StartAttempt
from paternoster_gateway.call.attempt import Attempt, HandedOver
from paternoster_gateway.call.journaled_stream import JournaledStream
from paternoster_gateway.call.router import Router
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.call.suspicion import LONG_BODY, Suspicion, suspicion_of
from paternoster_gateway.errors import GatewayError, keys_refused, unavailable_error
from paternoster_gateway.proxy.answer import Answer
from paternoster_gateway.proxy.answer_progress import AnswerProgress, EngineResponse, count_head, result_of
from paternoster_gateway.proxy.body import rename_in_answer
from paternoster_gateway.proxy.call_hand_over import read_journal
from paternoster_gateway.proxy.headers import (
    EVENT_STREAM,
    answer_headers,
    is_status_of_engine,
    media_type_of,
    prompt_tokens_of,
)
from paternoster_gateway.proxy.liveness import Liveness, Wait
from paternoster_gateway.proxy.replica_client import ReplicaClient
from paternoster_gateway.routing.decisions import Result, RoutedRequest
from paternoster_http.start_turns import StartTurns

log = logging.getLogger(__name__)

HANDED_OVER = frozenset({500, 503})
"""Statuses of a call that another replica is to go on with: a step failed, or the replica ends."""
LONG_PIECE = 2**14
"""Bytes of an answer that came at once: of longer pieces a few are read in one iteration of the event loop."""


class Attempts:
    """The attempts of all calls of one gateway."""

    def __init__(self, client: ReplicaClient, liveness: Liveness, router: Router) -> None:
        self._client = client
        self._liveness = liveness
        self._router = router
        self._long_pieces = StartTurns()

    async def run_attempt(self, session: CallSession, action: StartAttempt) -> Attempt:
        """Send the call of ``action``, wait for the first piece of the answer and report what came of it.

        ``until_admitted``: wait for its headers alone, with which an engine admits a stream that goes on.
        """
        replica, call, request, admission = action.replica, action.call, session.request, session.admission
        url, number, stack = replica.url, len(request.tried), AsyncExitStack()
        progress = AnswerProgress(call)
        header_wait: Wait | None = None  # for the headers, which come after the body was read and checked
        try:
            with self._liveness.expect_bytes(url) as header_wait:
                sent = await self._client.post(replica, call, admission)
                response: EngineResponse = await stack.enter_async_context(sent)
            header_wait = None
            if progress.comes_in(response):
                response = await progress.read_answer(response, partial(self._await_piece, replica, admission))
            count_head(response, call)
            if response.status == 401:
                await stack.aclose()
                log.warning("%s at %s refused the gateway's key: not of its fleet's root", replica.name, url)
                return Attempt(url, keys_refused(call.model, number), "status_401", Result.NOT_THE_ENGINE)
            if not is_status_of_engine(response.status):
                await stack.aclose()
                log.warning("%s answered with status %d, which no engine does", url, response.status)
                message = f"A replica of `{call.model}` answered with a status that no engine has."
                error = GatewayError(502, "BadGatewayError", message)
                return Attempt(url, error, "bad_status", Result.NOT_THE_ENGINE)
            numerics = response.headers.get(JOURNAL)
            if response.status in HANDED_OVER and numerics is not None and JournaledStream.can_begin(numerics):
                journal = await read_journal(
                    partial(self._await_piece, replica, admission, response), call.open_request
                )
                await stack.aclose()
                handed_over = HandedOver(numerics, journal, failed=response.status == 500)
                error = unavailable_error("The replica ends, or a step of it failed.", 1)
                return Attempt(url, error, "not_serving", handed_over=handed_over)
            result, first = result_of(response.status, response.headers), None
            if not (action.until_admitted and result is Result.ANSWERED):
                # The first piece belongs to the attempt: an engine that dies before it can be replaced.
                first = await self._await_piece(replica, admission, response)
            chunks = self._stream_body(replica, admission, response, first, stack)
            chunks = rename_in_answer(chunks, replica.upstream_model, admission.served_as)
            headers, is_stream = answer_headers(response.raw_headers), media_type_of(response.headers) == EVENT_STREAM
            if call.debug:
                headers.append((ROUTING.lower().encode(), self._routing_of(request, replica).encode()))
            answer = Answer(response.status, headers, url, number, is_stream=is_stream, chunks=chunks, stack=stack)
            if is_stream and response.status == 200 and JournaledStream.can_begin(numerics):
                answer.numerics = numerics
            served = response.status == 200
            tokens = prompt_tokens_of(response.headers) if served and RESUME not in call.headers else None
            attempt = Attempt(url, answer, f"status_{response.status}", result, served, tokens)
            attempt.phases = RequestPhases.decode(response.headers.get(PHASES, ""))
            if result is Result.NOT_SERVING:
                attempt.reason, attempt.is_stop = "not_serving", response.headers[NOT_SERVING] == DIED
                attempt.suspicion = Suspicion.POSSIBLE if attempt.is_stop else Suspicion.NONE
            return attempt
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await stack.aclose()
            log.warning("%s did not answer: %s", url, error_text(error))
            suspected = Suspicion.NONE
            if header_wait is not None:
                suspected = suspicion_of(len(call.body), header_wait, is_stop=is_stop(error))
            return Attempt(
                url,
                unavailable_error(f"{number} replicas of `{call.model}` did not answer.", 1),
                "hung" if url in self._liveness.hung else "unreachable",
                Result.UNREACHABLE,
                suspicion=suspected,
                is_stop=is_stop(error),
                broke_off=header_wait is None and not isinstance(error, TimeoutError),
                handed_over=progress.build_hand_over(),
            )
        except BaseException:
            await stack.aclose()
            left_early = header_wait is not None and not (header_wait.silent_before or header_wait.answered)
            if header_wait is not None and left_early and len(call.body) > LONG_BODY:
                session.record_left(url, header_wait.read_by)
            raise
        finally:
            progress.drop_journal()

    def _routing_of(self, request: RoutedRequest, replica: Replica) -> str:
        """The value of :data:`ROUTING`: clients get no name of a pod, but its number among those of its fleet."""
        row, pick = self._router.balancer.table.models.get(request.model), request.pick
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
        admission: ClientAdmission,
        response: EngineResponse,
        first: bytes | None,
        stack: AsyncExitStack,
    ) -> AsyncGenerator[bytes]:
        """``first``: the first piece, where it was read; an empty piece comes where the stream may be handed over."""
        async with stack:
            try:
                chunk = first
                while True:
                    while chunk is None:
                        if (chunk := await self._read_piece(replica, admission, response)) is None:
                            yield b""
                    if not chunk:
                        return
                    yield chunk
                    chunk = None
            except (GeneratorExit, asyncio.CancelledError):
                # The client has left: closing the connection ends the request at the engine.
                response.close()
                raise

    async def _read_piece(self, replica: Replica, admission: ClientAdmission, response: EngineResponse) -> bytes | None:
        """The next piece, empty at the end; None where the stream may be handed over, and none has come."""
        try:
            return await self._await_piece(replica, admission, response, interruptible=True)
        except TimeoutError:
            if replica.url in self._liveness.hung:
                raise
            return None

    async def _await_piece(
        self, replica: Replica, admission: ClientAdmission, response: EngineResponse, *, interruptible: bool = False
    ) -> bytes:
        """The next piece, empty at the end; a long one once it is its party's turn."""
        with self._liveness.expect_bytes(replica.url, interruptible=interruptible):
            piece = await response.content.readany()
        if len(piece) > LONG_PIECE:
            await self._long_pieces.wait_turn(admission.party)
        return piece


def is_stop(error: BaseException) -> bool:
    """Whether ``error`` came of a replica that stopped; not of one that takes no connection, or answers nonsense."""
    ended = isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError, TimeoutError))
    return ended and not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError))
