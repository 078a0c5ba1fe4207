"""Forward a request's body to replicas and the answer to the client, without parsing them.

:class:`~paternoster_gateway.call.session.CallSession` decides what is done for a call; here it is done, on asyncio.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.admission.quarantine import Quarantine
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
    ProbeReplicas,
    StartAttempt,
)
from paternoster_gateway.call.attempt import Attempt, ReplicaAnswer
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.journaled_stream import FrameTooLong
from paternoster_gateway.call.registry import SessionRegistry
from paternoster_gateway.call.session import CallSession
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.process.access_log import forwarded
from paternoster_gateway.proxy.answer import Answer, AnswerBrokenOff
from paternoster_gateway.proxy.attempts import Attempts
from paternoster_gateway.proxy.call_hand_over import CallHandOver
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.proxy.liveness import Liveness
from paternoster_gateway.proxy.recorded_calls import RecordedCalls
from paternoster_gateway.proxy.replica_client import ReplicaClient
from paternoster_gateway.records.call_record import CallRecord, CallRecords
from paternoster_gateway.routing.limits import PROBE_SECONDS
from paternoster_http.errors.refusal import Refusal
from paternoster_http.errors.request_id import current_request_id

log = logging.getLogger(__name__)

BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class Proxy:
    """Sends calls to replicas."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        metrics: GatewayMetrics,
        client: ReplicaClient,
        liveness: Liveness,
        quarantine: Quarantine,
        records: CallRecords,
    ) -> None:
        self._dispatcher = dispatcher
        self._records = records
        self._liveness = liveness
        self._client = client
        self._attempts = Attempts(client, liveness, dispatcher)
        self._registry = SessionRegistry(dispatcher, quarantine, RecordedCalls(metrics), dispatcher.wake_requests)
        self._hand_over = CallHandOver(self._registry, client.call_briefly)

    async def close(self) -> None:
        await self._hand_over.close()

    def hand_streams_over(self) -> None:
        """Begin to move what draining replicas have, now that the routing table has changed."""
        self._hand_over.on_table_change()
        for url in self._dispatcher.balancer.handing_over:
            self._liveness.interrupt_waits(url)

    async def send(self, call: Call, admission: ClientAdmission, on_admission: Callable[[], object]) -> Answer:
        """The answer of a replica; raises :class:`GatewayError` where there is none.

        ``on_admission`` is called before the first decision that may hold the call, or send it.
        """
        request = await self._dispatcher.open_call(call, admission)
        session = CallSession(self._registry, call, admission, request)
        request_id = current_request_id.get()
        record = CallRecord(self._records, call, admission, request, request_id, self._dispatcher.clock(), time.time())
        on_admission()
        return await CallDriver(session, record, self._dispatcher, self._attempts, self._client).find_answer()


class CallDriver:
    """Carries out the actions of one session, and has the answers that are open."""

    def __init__(
        self,
        session: CallSession,
        record: CallRecord,
        dispatcher: Dispatcher,
        attempts: Attempts,
        client: ReplicaClient,
    ) -> None:
        self._session = session
        self._record = record
        self._dispatcher = dispatcher
        self._attempts = attempts
        self._client = client
        self._open: list[Answer] = []

    async def find_answer(self) -> Answer:
        """The answer as the client gets it, whose first piece is there; raises :class:`GatewayError`."""
        try:
            action = self._session.advance()
            while not isinstance(action, Forward):
                assert action is not None, "a session ends with an answer or an error"
                action = self._session.advance(await self._carry_out(action))
        except BaseException as error:
            self._record.fail(error)
            await self._close()
            raise
        self._begin_action(action)
        stack = AsyncExitStack()
        stack.push_async_callback(self._close)
        return replace(_own_answer(action.answer), chunks=self._relay_pieces(action), stack=stack)

    async def _relay_pieces(self, action: Action | None) -> AsyncGenerator[bytes]:
        session = self._session
        try:
            while action is not None:
                if isinstance(action, Forward):
                    answer, pause = _own_answer(action.answer), Pause.ENDED
                    try:
                        async for piece in answer.chunks:
                            if frames := session.read_piece(piece):
                                yield frames
                            if session.may_move():
                                pause = Pause.MAY_MOVE
                                break
                    except (Refusal, FrameTooLong, *BROKEN) as error:
                        action = session.advance(_read_break(answer, error))
                        # Its frames hold the answer, which holds the error: a cycle for the garbage collector.
                        error.with_traceback(None)
                        if isinstance(action, Abort):
                            raise AnswerBrokenOff from None
                        continue
                    action = session.advance(pause)
                    continue
                if isinstance(action, EndInError):
                    self._begin_action(action)
                    if (details := forwarded.get()) is not None:
                        details.error_event_code = action.error.status
                    yield b"\n\n" * action.within_frame + action.error.encode_event(self._record.call.path)
                action = session.advance(await self._carry_out(action))
        finally:
            await self._close()

    def _begin_action(self, action: Action) -> None:
        request, dispatcher = self._session.request, self._dispatcher
        row = dispatcher.balancer.table.models.get(request.model)
        self._record.begin_action(action, row, dispatcher.balancer.count_held(request.model), dispatcher.clock())

    async def _carry_out(self, action: Action) -> object:
        """The event that answers ``action``, if it has one."""
        self._begin_action(action)
        event = await self._do_action(action)
        self._record.end_action(action, event, self._dispatcher.clock())
        return event

    async def _do_action(self, action: Action) -> object:
        match action:
            case Hold(until):
                await self._dispatcher.await_wake(self._session.request, until)
            case AwaitTurn():
                await self._dispatcher.await_wake(self._session.request)
            case StartAttempt():
                return await self._run_attempt(action)
            case ProbeReplicas(urls):
                await asyncio.sleep(0)  # the other calls that the replica had record the stop, too
                answers = await asyncio.gather(*(self._client.answers_probe(url, PROBE_SECONDS) for url in urls))
                return [url for url, answered in zip(urls, answers, strict=True) if answered]
            case Discard(answer):
                own = _own_answer(answer)
                self._open.remove(own)
                await own.discard()
        return None

    async def _run_attempt(self, action: StartAttempt) -> Attempt:
        timer = None
        if action.seconds_alone is not None:
            timer = asyncio.get_running_loop().call_later(action.seconds_alone, self._session.end_turn)
        try:
            attempt = await self._attempts.run_attempt(self._session, action)
        finally:
            if timer is not None:
                timer.cancel()
        if isinstance(attempt.outcome, Answer):
            self._open.append(attempt.outcome)
        return attempt

    async def _close(self) -> None:
        """Close all that is open; more than once has no effect."""
        self._record.end(self._session.phases, self._dispatcher.clock())
        self._session.close()
        while self._open:
            await self._open.pop().discard()


def _own_answer(answer: ReplicaAnswer) -> Answer:
    assert isinstance(answer, Answer), "this driver makes all answers"
    return answer


def _read_break(answer: Answer, error: Exception) -> Break:
    if isinstance(error, Refusal):
        return Break(BreakCause.NO_ROOM, str(error))
    log.warning("%s broke off an answer: %s", answer.replica, error_text(error))
    return Break(BreakCause.FRAME_TOO_LONG if isinstance(error, FrameTooLong) else BreakCause.CLOSED, str(error))
