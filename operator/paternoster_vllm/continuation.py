"""Streams that another vLLM can continue: a layer between the plugin's routes and vLLM's application.

The client's own body goes to vLLM at both engines. The second one gets the outputs of the first from the journal
(:mod:`paternoster_vllm.engine_outputs`), writes the same frames again, and those that the client has are left out.
"""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from paternoster_vllm import drawn_ids, engine_outputs
from paternoster_vllm.asgi import App, Receive, Scope, Send, error_body, read_body, send_error, send_json
from paternoster_vllm.server_facts import ServerFacts, read_facts
from paternoster_vllm.stream_journal import (
    COMMENT,
    END,
    FAILED,
    HAND_OVER,
    JOURNAL,
    MAX_JOURNAL_BYTES,
    NOT_CONTINUED,
    RESUME,
    STREAM_ID,
    InvalidJournal,
    Progress,
    UnsupportedCall,
    decode_journal,
    decode_resume,
    decode_stream_id,
)

log = logging.getLogger(__name__)

GATEWAY_ENV = "PATERNOSTER_VLLM_GATEWAY"
"""Set where the keys of the API are a gateway's alone: its headers of streams are believed then."""
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
"""Whose streams have a journal."""
LONGEST_BODY = 64 * 2**20 + MAX_JOURNAL_BYTES
"""Bytes of a request that is looked into; a longer one passes untouched."""
MAX_FRAME_BYTES = 16 * 2**20
LAST_FRAMES = (b"data: [DONE]", b"event: error\n", b"event: response.failed\n", b"event: message_stop\n")
"""How a frame begins behind which vLLM ends the stream, though the model may not have."""
OWN_TOOLS = frozenset({"function", "custom"})
"""Types of tools that clients call; vLLM itself calls the others, with a request to the engine for each."""

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


def find_unsupported(path: str, document: dict[str, Any]) -> str | None:
    """What no other vLLM can continue of a call, as far as its body says."""
    if document.get("background"):
        return "background"
    if document.get("previous_response_id"):
        return "previous_response_id"  # only the server that answered has the response
    if document.get("use_beam_search"):
        return "use_beam_search"
    tools = document.get("tools")
    if path == "/v1/responses" and isinstance(tools, list):
        kinds = [tool.get("type") for tool in tools if isinstance(tool, dict)]
        return next((f"tools of type {str(kind)[:40]}" for kind in kinds if kind not in OWN_TOOLS), None)
    return None


class StreamContinuation:
    """Writes the journal of streams that gateways ask for, and continues those of other vLLMs."""

    def __init__(self, app: App, read: ReadFacts = read_facts) -> None:
        self._app = app
        self._read = read
        self._facts: asyncio.Task[ServerFacts | None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS or not os.environ.get(GATEWAY_ENV):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        facts = await self._find_facts(scope) if STREAM_ID in headers else None
        if facts is None:
            await self._app(scope, receive, send)
            return
        body, read_again = await read_body(receive, LONGEST_BODY)
        try:
            draws = drawn_ids.StreamDraws(*decode_stream_id(headers[STREAM_ID]))
            journal, num_frames = b"", 0
            if RESUME in headers and body is not None:
                num_frames, num_bytes, numerics = decode_resume(headers[RESUME])
                if numerics != facts.numerics:
                    text = f"the stream began at an engine with {numerics}, and this one has {facts.numerics}"
                    await send_error(send, 412, text)
                    return
                split = max(0, len(body) - num_bytes)
                body, journal = body[:split], body[split:]
            call = None if body is None else _read_streamed(body)
            if body is None or call is None:
                if RESUME in headers:
                    raise InvalidJournal("the call is no stream")
                await self._app(scope, read_again, send)
                return
            progress = Progress()
            if num_frames:
                progress = decode_journal(journal, num_frames, facts.vocab_size, facts.max_model_len)
            outputs = engine_outputs.EngineOutputs(
                progress, facts.build_output, facts.max_model_len, advances_grammars=facts.advances_grammars
            )
            if (name := find_unsupported(scope["path"], call)) is not None:
                outputs.refuse_continuation(name)
            stream = FrameSender(send, outputs, facts, num_frames)
            await self._call_app(scope, _replace_body(body, receive), stream, outputs, draws, len(body))
        except UnsupportedCall as error:
            body_of_error = error_body(f"a stream with {error} is not continued", RESUME.decode())
            await send_json(send, 400, body_of_error, (NOT_CONTINUED, str(error).encode()))
        except InvalidJournal as error:
            await send_error(send, 400, f"{RESUME.decode()}: {error}", RESUME.decode())

    async def _find_facts(self, scope: Scope) -> ServerFacts | None:
        if self._facts is None:
            self._facts = asyncio.create_task(self._read_facts(scope["app"].state))
        return await asyncio.shield(self._facts)

    async def _read_facts(self, state: Any) -> ServerFacts | None:
        try:
            facts = await asyncio.to_thread(self._read, state)
            engine_outputs.replace_methods(facts.client)
            drawn_ids.replace_sources()
        except Exception as error:  # vLLM serves all the same
            log.warning("paternoster_vllm: streams cannot be continued: %s: %s", type(error).__name__, error)
            return None
        return facts

    async def _call_app(
        self,
        scope: Scope,
        receive: Receive,
        stream: "FrameSender",
        outputs: engine_outputs.EngineOutputs,
        draws: drawn_ids.StreamDraws,
        num_bytes: int,
    ) -> None:
        """vLLM's answer goes to ``stream``; what it makes for it passes ``outputs``."""
        left_out = (RESUME, b"content-length", b"transfer-encoding")
        headers = [(name, value) for name, value in scope["headers"] if name not in left_out]
        headers.append((b"content-length", str(num_bytes).encode()))
        tokens = engine_outputs.CURRENT.set(outputs), drawn_ids.CURRENT.set(draws)
        try:
            await self._app({**scope, "headers": headers}, receive, stream.send)
        finally:
            engine_outputs.CURRENT.reset(tokens[0])
            drawn_ids.CURRENT.reset(tokens[1])


class FrameSender:
    """Sends a stream of vLLM with its journal; another answer than a stream is sent as it is."""

    def __init__(self, send: Send, outputs: engine_outputs.EngineOutputs, facts: ServerFacts, num_frames: int) -> None:
        """``num_frames``: which the client has, and which are left out."""
        self._send = send
        self._outputs = outputs
        self._facts = facts
        self._left_out = num_frames
        self._buffer = b""
        self._headers = [(JOURNAL, facts.numerics.encode())]
        self._is_stream = self._ended = self._has_last = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a message of an ASGI application."""
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

    async def _send_frames(self, piece: bytes, *, more: bool) -> None:
        written = b""
        *frames, self._buffer = (self._buffer + piece).split(END)
        if len(self._buffer) > MAX_FRAME_BYTES:
            raise ValueError(f"vLLM wrote a frame of more than {MAX_FRAME_BYTES} bytes")
        for frame in frames:
            if fault := self._find_fault():
                written += fault
                self._ended = True
                break
            line = self._outputs.take_line()
            self._has_last = frame.startswith(LAST_FRAMES)
            if self._left_out:
                self._left_out -= 1
            else:
                written += COMMENT + line + b"\n" + frame + END
        if not more and not self._ended:
            self._ended = True
            if not self._has_last and not self._outputs.is_complete:
                written += self._find_fault() or HAND_OVER + END
        if written or self._ended:
            await self._send({"type": "http.response.body", "body": written, "more_body": not self._ended})

    def _find_fault(self) -> bytes:
        """What is written in place of a frame with which vLLM ends the answer though the model did not."""
        is_dead = not self._outputs.is_complete and getattr(self._facts.client, "errored", False)
        return self._outputs.fault or (FAILED + END + HAND_OVER + END if is_dead else b"")


def _read_streamed(body: bytes) -> dict[str, Any] | None:
    """The object of a body, where its answer is to be a stream."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and document.get("stream") is True else None


def _replace_body(body: bytes, receive: Receive) -> Receive:
    """``body`` first, then what ``receive`` has, which is that the client has left."""
    bodies = [body]

    def receive_body() -> Awaitable[MutableMapping[str, Any]]:
        return _give_body(bodies.pop()) if bodies else receive()

    return receive_body


async def _give_body(body: bytes) -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": body, "more_body": False}
