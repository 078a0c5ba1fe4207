"""Runs the chat that a request was translated to, and answers in the request's own API."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.server.errors import TABLE, InvalidValue, describe
from paternoster_engine.server.generation.generation import Generation
from paternoster_engine.server.generation.output_text import TextDelta
from paternoster_engine.server.generation.streaming import EventStream, unless_gone
from paternoster_engine.server.identity import Caller
from paternoster_engine.server.openai.fields.body import collect_ignored, report_ignored, unknown_fields
from paternoster_engine.server.openai.prompts import chat_requests
from paternoster_engine.server.openai.requests import ChatCompletionRequest
from paternoster_engine.server.parsers.events import Calls
from paternoster_engine.server.pieces import json_in_pieces
from paternoster_engine.server.state import ServedModel
from paternoster_engine.server.translation.answer import Answer, End, Frame

log = logging.getLogger(__name__)

Names = Mapping[str, str]
"""Of fields of the chat body, what the client calls them; empty for a level that the client's body has not."""


def chat_request(body: Mapping[str, Any], names: Names) -> ChatCompletionRequest:
    """Raises ``RequestValidationError`` in the client's words."""
    unknown = unknown_fields.get()
    try:
        return ChatCompletionRequest.model_validate(body)
    except ValidationError as error:
        raise RequestValidationError([_in_words_of(names, told) for told in error.errors(include_url=False)]) from error
    finally:
        # The client is told of those of its own body.
        unknown_fields.set(unknown)


async def respond(
    request: Request,
    served: ServedModel,
    chat: ChatCompletionRequest,
    answer: Answer,
    sender: Caller,
    names: Names,
    *,
    stream: bool,
    cuts_limit: bool = False,
) -> Response:
    """The response to one call. A stream begins with its first text: what fails before that still gets a status.

    ``cuts_limit``: as of :func:`~paternoster_engine.server.openai.prompts.chat_requests`.
    """
    with named(names):
        made = chat_requests(served, chat, answer.id, sender, cuts_limit=cuts_limit)
        sequences, ending = await unless_gone(request, made)
    form = served.answer_format
    generation = Generation(
        served.loop,
        served.tokenizer,
        sequences,
        chat.skip_special_tokens,
        new_parser=lambda: form.parser(chat.callable_tools, ending, chat.required_calls),
    )
    calls = Calls(parallel=chat.parallel_tool_calls)
    try:
        await generation.start()
        deltas = generation.deltas()
        _, first = await unless_gone(request, anext(deltas))
        frames = _frames(answer, generation, calls, first, deltas)
        if stream:
            return EventStream(frames, generation, partial(_events, fail=answer.fail, in_pieces=chat.logprobs))
        await unless_gone(request, _passed(frames))
    except BaseException:
        generation.close()
        raise
    whole = answer.whole()
    data = await json_in_pieces(whole) if chat.logprobs else whole.model_dump_json()
    return Response(data, media_type="application/json")


@contextmanager
def named(names: Names) -> Iterator[None]:
    """:class:`InvalidValue` within is in the client's words, and so are ignored fields and what a template refuses."""
    try:
        with collect_ignored() as ignored:
            yield
    except InvalidValue as error:
        told = {field: ".".join(_path(field.split("."), names)) for field in (error.field, error.other) if field}
        # Longer ones first, as one may begin with the other, and no more than these: values may look like fields.
        either = "|".join(re.escape(field) for field in sorted(told, key=len, reverse=True))
        message = re.sub(either, lambda found: told[found[0]], str(error), count=len(told))
        raise InvalidValue(told[error.field], message) from error
    except ChatTemplateError as error:
        raise InvalidValue(names.get("messages", "messages"), str(error)) from error
    report_ignored(*(".".join(_path(field.split("."), names)) for field in ignored))


async def _frames(
    answer: Answer,
    generation: Generation,
    calls: Calls,
    first: TextDelta,
    later: AsyncIterator[tuple[int, TextDelta]],
) -> AsyncIterator[Frame]:
    for frame in (*answer.begin(generation.usage), *answer.push(calls.told(first.events), first.content_tokens)):
        yield frame
    last = first
    async for _, last in later:
        for frame in answer.push(calls.told(last.events), last.content_tokens):
            yield frame
    for frame in answer.end(_end(generation, last)):
        yield frame


async def _passed(frames: AsyncIterator[Frame]) -> None:
    """Let the answer grow to its end."""
    async for _ in frames:
        pass


async def _events(
    frames: AsyncIterator[Frame], fail: Callable[[int, str], Iterator[Frame]], in_pieces: bool
) -> AsyncIterator[str]:
    """``in_pieces``: frames may be long, and others have their turn while one is written."""
    try:
        async for frame in frames:
            yield await _event(frame, in_pieces)
    except Exception as error:
        if type(error) not in TABLE:
            log.exception("a stream failed")
        response, body = describe(error)
        for frame in fail(response.status, body["error"]["message"]):
            yield await _event(frame, in_pieces)


async def _event(frame: Frame, in_pieces: bool) -> str:
    if in_pieces and isinstance(frame, BaseModel):
        data = (await json_in_pieces(frame)).decode()
    else:
        data = frame.model_dump_json()
    return f"event: {frame.type}\ndata: {data}\n\n"


def _end(generation: Generation, last: TextDelta) -> End:
    assert last.finish_reason is not None
    return End(last.finish_reason, generation.usage, generation.stop_strings[0])


def _in_words_of(names: Names, error: Mapping[str, Any]) -> dict[str, Any]:
    told = {**error, "loc": ("body", *_path(error["loc"], names))}
    if isinstance(error["input"], list | dict):
        # It may be what the translation made.
        del told["input"]
    return told


def _path(path: Iterable[int | str], names: Names) -> list[str]:
    """Places in the conversation are others than the client's: of these the field alone is told."""
    parts = [str(part) for part in path]
    told = [names.get(part, part) for part in (parts[:1] if parts[:1] == ["messages"] else parts)]
    return [part for part in told if part]
