"""Runs the chat that a request was translated to, and answers in the request's own API."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from paternoster_engine.server.access.identity import Caller
from paternoster_engine.server.continuation.journal import StreamJournal
from paternoster_engine.server.error_responses import TABLE, describe_error
from paternoster_engine.server.generation.generation import Generation
from paternoster_engine.server.generation.output_text import SequenceDelta
from paternoster_engine.server.generation.streaming import EventStream, unless_gone
from paternoster_engine.server.openai.prompts import chat_requests
from paternoster_engine.server.openai.requests import ChatCompletionRequest
from paternoster_engine.server.parsers.events import Calls
from paternoster_engine.server.pieces import json_in_pieces
from paternoster_engine.server.state import ServedModel
from paternoster_engine.server.translation.answer import AnswerEnd, Frame, TranslatedAnswer
from paternoster_engine.server.translation.names import ClientNames, use_client_names

log = logging.getLogger(__name__)


async def respond_chat(
    request: Request,
    served: ServedModel,
    chat: ChatCompletionRequest,
    answer: TranslatedAnswer,
    sender: Caller,
    names: ClientNames,
    *,
    stream: bool,
) -> Response:
    """The response to one call. A stream begins with its first text: what fails before that still gets a status."""
    with use_client_names(names):
        made = chat_requests(served, chat, answer.id, sender)
        sequences, ending = await unless_gone(request, made)
    generation = Generation(
        served.answers,
        sequences,
        chat.skip_special_tokens,
        new_parser=partial(served.answers.format.build_parser, chat.callable_tools, ending, chat.required_calls),
        journal=StreamJournal.of_call(served.fingerprint, served.vocab_size, served.draining),
        is_stream=stream,
    )
    calls = Calls(parallel=chat.parallel_tool_calls)
    try:
        await generation.start()
        deltas = generation.stream_deltas()
        _, first = await unless_gone(request, anext(deltas))
        generation.report_prompts()
        frames = _answer_frames(answer, generation, calls, first, deltas)
        if stream:
            return EventStream(
                frames, generation, partial(_event_texts, fail=answer.failure_frames, in_pieces=chat.logprobs)
            )
        await unless_gone(request, _exhaust_frames(frames))
        generation.report_prompts()
    except BaseException:
        generation.close()
        raise
    whole = answer.build_answer()
    data = await json_in_pieces(whole) if chat.logprobs else whole.model_dump_json()
    return Response(data, media_type="application/json")


async def _answer_frames(
    answer: TranslatedAnswer,
    generation: Generation,
    calls: Calls,
    first: SequenceDelta,
    later: AsyncIterator[tuple[int, SequenceDelta]],
) -> AsyncIterator[Frame]:
    for frame in (*answer.start_frames(generation.usage), *answer.event_frames(calls.filter_events(first.events))):
        yield frame
    last = first
    async for _, last in later:
        for frame in answer.event_frames(calls.filter_events(last.events)):
            yield frame
    for frame in answer.end_frames(_end_of_answer(generation, last)):
        yield frame


async def _exhaust_frames(frames: AsyncIterator[Frame]) -> None:
    """Let the answer grow to its end."""
    async for _ in frames:
        pass


async def _event_texts(
    frames: AsyncIterator[Frame], fail: Callable[[int, str], Iterator[Frame]], in_pieces: bool
) -> AsyncIterator[str]:
    """``in_pieces``: frames may be long, and others have their turn while one is written."""
    try:
        async for frame in frames:
            yield await _event_text(frame, in_pieces)
    except Exception as error:
        if type(error) not in TABLE:
            log.exception("a stream failed")
        response, body = describe_error(error)
        for frame in fail(response.status, body["error"]["message"]):
            yield await _event_text(frame, in_pieces)


async def _event_text(frame: Frame, in_pieces: bool) -> str:
    if in_pieces and isinstance(frame, BaseModel):
        data = (await json_in_pieces(frame)).decode()
    else:
        data = frame.model_dump_json()
    return f"event: {frame.type}\ndata: {data}\n\n"


def _end_of_answer(generation: Generation, last: SequenceDelta) -> AnswerEnd:
    assert last.finish_reason is not None
    return AnswerEnd(last.finish_reason, generation.usage, generation.stop_strings[0])
