"""Answers that end when their client leaves: whole ones and server-sent events."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from paternoster_contract.stream_journal import JOURNAL
from paternoster_engine.server.error_responses import TABLE, describe_error
from paternoster_engine.server.errors import ClientGone
from paternoster_engine.server.generation.generation import Generation
from paternoster_engine.server.pieces import json_in_pieces

log = logging.getLogger(__name__)

T = TypeVar("T")

DONE = "data: [DONE]\n\n"
STREAMED: dict[str, Any] = {"content": {"text/event-stream": {}}}
"""How the OpenAPI document describes the answer to ``stream``."""


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``; cancels it and raises :class:`ClientGone` when the client leaves first."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        leaving.cancel()
        task.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def data_events(frames: AsyncIterator[BaseModel]) -> AsyncIterator[str]:
    async for event in _data_events(frame.model_dump_json(exclude_unset=True) async for frame in frames):
        yield event


async def long_data_events(frames: AsyncIterator[BaseModel]) -> AsyncIterator[str]:
    """Write frames that may be long as events: others have their turn while one is written."""
    async for event in _data_events(
        (await json_in_pieces(frame, exclude_unset=True)).decode() async for frame in frames
    ):
        yield event


async def _data_events(frames: AsyncIterator[str]) -> AsyncIterator[str]:
    """An error after the first frame comes as a frame; ``[DONE]`` is always last."""
    try:
        async for frame in frames:
            yield f"data: {frame}\n\n"
    except Exception as error:
        if type(error) not in TABLE:
            log.exception("a stream failed")
        yield f"data: {json.dumps(describe_error(error)[1])}\n\n"
    yield DONE


class EventStream(StreamingResponse):
    """Frames as the server-sent events that ``write`` makes of them.

    Closes ``generation`` when the stream has ended, also when the client left before it began.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[Any],
        generation: Generation,
        write: Callable[[AsyncIterator[Any]], AsyncIterator[str]] = data_events,
    ) -> None:
        headers, texts = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}, write(frames)
        journal = generation.journal
        if journal is None:
            super().__init__(texts, headers=headers)
        else:
            written = journal.write_frames(texts, lambda: generation.final_phases)
            super().__init__(written, headers=headers | {JOURNAL: journal.numerics})
        self._generation = generation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._generation.close()
