"""Middleware that sends the journal of a whole answer before it, as it is computed.

A gateway that has the journal continues the answer at another engine when this one dies
(:mod:`paternoster_contract.stream_journal`).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_contract.stream_journal import (
    JOURNAL,
    MAX_JOURNAL_BYTES,
    PROGRESS,
    PROGRESS_MEDIA_TYPE,
    STREAM_ID,
    AnswerHead,
    StreamId,
)
from paternoster_contract.supervise import supervise_task
from paternoster_engine.server.access.identity import TenantRules

EncodeProgress = Callable[[StreamId], tuple[str, Sequence[bytes]]]
"""What decides which numbers are computed, and the lines of a call's journal since the last time."""
PROGRESS_SECONDS = 1.0
"""Until the first lines of the journal, and between lines after that."""


class AnswersInProgress:
    """The outermost but for what reads requests: the head of an answer is complete here."""

    def __init__(self, app: ASGIApp, encode_progress: EncodeProgress, rules: TenantRules) -> None:
        self._app = app
        self._encode_progress = encode_progress
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream_id = _stream_id_of(scope) if self._rules.believes_header else None
        if stream_id is None:
            await self._app(scope, receive, send)
            return
        answer = AnswerInProgress(send)
        write = partial(self._write_progress, answer, stream_id)
        tasks: list[asyncio.Task[None]] = []
        timer = asyncio.get_running_loop().call_later(
            PROGRESS_SECONDS, lambda: tasks.append(supervise_task(write, "answer-in-progress", again=False))
        )
        try:
            await self._app(scope, receive, answer.send)
        finally:
            timer.cancel()
            for task in tasks:
                task.cancel()

    async def _write_progress(self, answer: "AnswerInProgress", stream_id: StreamId) -> None:
        while not answer.has_begun:
            await answer.write_lines(*self._encode_progress(stream_id))
            await asyncio.sleep(PROGRESS_SECONDS)


class AnswerInProgress:
    """Sends the answer of the application, behind lines of its journal where there are any."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending = asyncio.Lock()
        self._has_lines = False
        self._num_bytes = 0
        """Length of the journal."""
        self.has_begun = False
        """Whether the application has sent the head of its answer."""

    async def write_lines(self, numerics: str, lines: Sequence[bytes]) -> None:
        async with self._sending:
            data = b"".join([line + b"\n" for line in lines])
            self._num_bytes += len(data)
            # An answer goes on behind any beginning of its journal: a gateway keeps no more of it.
            if self.has_begun or not lines or self._num_bytes > MAX_JOURNAL_BYTES:
                return
            if not self._has_lines:
                self._has_lines = True
                headers = [
                    (b"content-type", PROGRESS_MEDIA_TYPE.encode()),
                    (JOURNAL.lower().encode(), numerics.encode()),
                ]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send_body(data)

    async def send(self, message: Message) -> None:
        async with self._sending:
            if message["type"] == "http.response.start":
                self.has_begun = True
                if self._has_lines:
                    head = AnswerHead(message["status"], [(name, value) for name, value in message.get("headers", [])])
                    await self._send_body(head.encode() + b"\n")
                    return
            await self._send(message)

    async def _send_body(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


def _stream_id_of(scope: Scope) -> StreamId | None:
    """The id of a call whose gateway reads the journal before the answer; None for any other call."""
    if scope["type"] != "http":
        return None
    headers = Headers(scope=scope)
    if PROGRESS not in headers:
        return None
    try:
        return StreamId.decode(headers.get(STREAM_ID, ""))
    except ValueError:
        return None
