"""Streams that another vLLM can continue: a layer between the plugin's routes and vLLM's application."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from paternoster_vllm.asgi import App, Receive, Scope, Send, read_body, send_error
from paternoster_vllm.frames import FrameSplitter, JournalWriter
from paternoster_vllm.rest_of_stream import RestOfStream
from paternoster_vllm.server_facts import ServerFacts, read_facts
from paternoster_vllm.stream_journal import (
    END,
    HAND_OVER,
    JOURNAL,
    MAX_JOURNAL_BYTES,
    RESUME,
    STREAM_ID,
    InvalidJournal,
    decode_journal,
    decode_resume,
)
from paternoster_vllm.streamed_call import CHAT, COMPLETIONS, StreamedCall, read_call

log = logging.getLogger(__name__)

GATEWAY_ENV = "PATERNOSTER_VLLM_GATEWAY"
"""Set where the keys of the API are a gateway's alone: its headers of streams are believed then."""
LONGEST_BODY = 64 * 2**20 + MAX_JOURNAL_BYTES
"""Bytes of a request that is looked into; a longer one passes untouched."""

ReadFacts = Callable[[Any], ServerFacts]


def is_rest_of_stream(scope: Scope) -> bool:
    """Whether a gateway asks for the rest of a stream that another engine began."""
    headers = dict(scope["headers"])
    if STREAM_ID not in headers or RESUME not in headers or not os.environ.get(GATEWAY_ENV):
        return False
    try:
        return decode_resume(headers[RESUME])[0] > 0
    except InvalidJournal:
        return False


class StreamContinuation:
    """Writes the journal of streams that gateways ask for, and continues those of other vLLMs."""

    def __init__(self, app: App, read: ReadFacts = read_facts) -> None:
        self._app = app
        self._read = read
        self._facts: asyncio.Task[ServerFacts | None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (CHAT, COMPLETIONS) or not os.environ.get(GATEWAY_ENV):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        facts = await self._find_facts(scope) if STREAM_ID in headers else None
        if facts is None:
            await self._app(scope, receive, send)
            return
        body, read_again = await read_body(receive, LONGEST_BODY)
        try:
            journal, num_frames = b"", 0
            if RESUME in headers and body is not None:
                num_frames, num_bytes, numerics = decode_resume(headers[RESUME])
                if numerics != facts.numerics:
                    text = f"the stream began at an engine with {numerics}, and this one has {facts.numerics}"
                    await send_error(send, 412, text)
                    return
                split = max(0, len(body) - num_bytes)
                body, journal = body[:split], body[split:]
            call = None if body is None else read_call(scope["path"], body, forces_usage=facts.forces_usage)
            if call is None or not facts.can_continue(call):
                if RESUME in headers:
                    raise InvalidJournal("the call is none that is continued")
                await self._app(scope, read_again, send)
            elif num_frames == 0:
                await self._begin_stream(scope, receive, send, call, facts)
            else:
                await self._continue_stream(scope, receive, send, call, facts, journal, num_frames)
        except InvalidJournal as error:
            await send_error(send, 400, f"{RESUME.decode()}: {error}", RESUME.decode())

    async def _find_facts(self, scope: Scope) -> ServerFacts | None:
        if self._facts is None:
            self._facts = asyncio.create_task(self._read_facts(scope["app"].state))
        return await asyncio.shield(self._facts)

    async def _read_facts(self, state: Any) -> ServerFacts | None:
        try:
            return await asyncio.to_thread(self._read, state)
        except Exception as error:  # vLLM serves all the same
            log.warning("paternoster_vllm: streams cannot be continued: %s: %s", type(error).__name__, error)
            return None

    async def _begin_stream(
        self, scope: Scope, receive: Receive, send: Send, call: StreamedCall, facts: ServerFacts
    ) -> None:
        stream = FrameSender(send, JournalWriter(call), facts.numerics)
        await self._call_app(scope, receive, scope["path"], call.build_first_body(), stream)

    async def _continue_stream(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        call: StreamedCall,
        facts: ServerFacts,
        journal: bytes,
        num_frames: int,
    ) -> None:
        progress = decode_journal(journal, num_frames, facts.vocab_size, facts.max_model_len)
        limit = facts.limit_tokens(call, len(progress.head.prompt))
        rest = RestOfStream(call, progress, limit, facts.make_detokenizer, facts.fingerprint)
        stream = FrameSender(send, rest, facts.numerics)
        if (frames := rest.finish_at_once()) is not None:
            await stream.send_whole(frames)
            return
        await self._call_app(scope, receive, COMPLETIONS, rest.build_request(), stream)

    async def _call_app(self, scope: Scope, receive: Receive, path: str, body: bytes, stream: "FrameSender") -> None:
        """vLLM's answer to ``body`` goes to ``stream``, until that needs nothing more."""
        left_out = (RESUME, b"content-length", b"transfer-encoding")
        headers = [(name, value) for name, value in scope["headers"] if name not in left_out]
        headers.append((b"content-length", str(len(body)).encode()))
        inner = {**scope, "path": path, "raw_path": path.encode(), "headers": headers}
        answer = asyncio.create_task(_run(self._app, inner, _replace_body(body, receive), stream.send))
        cut = asyncio.create_task(stream.cut.wait())
        try:
            await asyncio.wait([answer, cut], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                answer.result()
        finally:
            cut.cancel()
            answer.cancel()  # vLLM aborts the request
            await asyncio.gather(answer, cut, return_exceptions=True)


class FrameSender:
    """Sends a stream of vLLM through a writer of frames; another answer than a stream is sent as it is."""

    def __init__(self, send: Send, writer: JournalWriter | RestOfStream, numerics: str) -> None:
        self._send = send
        self._writer = writer
        self._splitter = FrameSplitter()
        self._headers = [(JOURNAL, numerics.encode())]
        self._is_stream = self._ended = False
        self.cut = asyncio.Event()
        """Set once vLLM should make no more of what it makes."""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """As an application of ASGI sends it."""
        if self._ended:
            return
        if message["type"] == "http.response.start":
            types = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            is_events = len(types) == 1 and types[0].startswith(b"text/event-stream")
            self._is_stream = is_events and message["status"] == 200
            if self._is_stream:
                headers = [pair for pair in message["headers"] if pair[0].lower() != b"content-length"]
                message = {**message, "headers": [*headers, *self._headers]}
            await self._send(message)
        elif not self._is_stream or message["type"] != "http.response.body":
            await self._send(message)
        else:
            await self._send_frames(message.get("body", b""), more=message.get("more_body", False))

    async def send_whole(self, frames: bytes) -> None:
        """A stream of which nothing more is computed."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *self._headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": frames})

    async def _send_frames(self, piece: bytes, *, more: bool) -> None:
        written = b""
        for frame in self._splitter.feed(piece):
            if not self._writer.ended:
                written += self._writer.write_frame(frame)
        if not more and not self._writer.ended:
            written += HAND_OVER + END
        self._ended = self._writer.ended or not more
        if written or self._ended:
            await self._send({"type": "http.response.body", "body": written, "more_body": not self._ended})
        if self._writer.cuts:
            self.cut.set()


async def _run(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


def _replace_body(body: bytes, receive: Receive) -> Receive:
    """``body`` first, then what ``receive`` has, which is that the client has left."""
    bodies = [body]

    def receive_body() -> Awaitable[MutableMapping[str, Any]]:
        return _give_body(bodies.pop()) if bodies else receive()

    return receive_body


async def _give_body(body: bytes) -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": body, "more_body": False}
