"""Every answer of a server under test as the official clients read it: OpenAI's and Anthropic's types must take it."""

import base64
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, get_args, get_origin
from unittest import mock

import anthropic.types
import openai.types
from fastapi import FastAPI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.shared import ErrorObject
from pydantic import TypeAdapter, ValidationError
from tests.engine.server.recorded_answers import Recorded, recording

from paternoster_contract.stream_journal import MEDIA_TYPE, PROGRESS_MEDIA_TYPE

STREAMED = "text/event-stream"
DONE = "[DONE]"
ANTHROPICS = "/v1/messages"
MODELS = "/v1/models"
WHOLE: Mapping[str, Any] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": openai.types.Completion,
    "/v1/embeddings": openai.types.CreateEmbeddingResponse,
    "/v1/responses": Response,
    "/v1/messages": anthropic.types.Message,
    "/v1/messages/count_tokens": anthropic.types.MessageTokensCount,
}
EVENTS: Mapping[str, Any] = {
    "/v1/chat/completions": ChatCompletionChunk,
    "/v1/completions": openai.types.Completion,
    "/v1/responses": ResponseStreamEvent,
    "/v1/messages": anthropic.types.RawMessageStreamEvent,
}
WITHOUT = ("/v1/rerank", "/v1/score", "/v1/load_lora_adapter", "/v1/unload_lora_adapter")
"""Neither client has these."""


@contextmanager
def official_types() -> Iterator[None]:
    """Raises ``AssertionError`` at the end for answers of this process's servers that the types do not take."""
    answers: list[Recorded] = []
    with mock.patch.object(FastAPI, "__call__", recording(FastAPI.__call__, answers.append)):
        yield
    assert not (found := faults(answers)), "\n".join(found)


def faults(answers: Iterable[Recorded]) -> list[str]:
    """What the official clients' types do not take."""
    found = []
    for answer in answers:
        try:
            check(answer)
        except (ValidationError, ValueError, KeyError) as error:
            found.append(f"{answer.method} {answer.path}: {answer.status}: {error}\n{answer.text[:2000]}")
    return found


def check(answer: Recorded) -> None:
    """Raises ``pydantic.ValidationError``, or ``ValueError`` where an answer is no JSON or of no known route."""
    path = answer.path
    if answer.content_type in (MEDIA_TYPE, PROGRESS_MEDIA_TYPE):
        return  # a gateway reads it
    if answer.method == "OPTIONS" or not answer.text or (path in WITHOUT and answer.status == 200):
        return
    if answer.content_type.startswith(STREAMED):
        for name, event in events(answer.text):
            check_event(path, name, event)
    elif answer.content_type != "application/json":
        raise ValueError(f"content type is {answer.content_type}")
    elif answer.ended:
        check_whole(path, answer.status, json.loads(answer.text))


def check_whole(path: str, status: int, body: Any) -> None:
    if status != 200:
        check_error(path, body)
    elif path == MODELS:
        assert body["object"] == "list"
        for card in body["data"]:
            _validate(openai.types.Model, card)
    elif path.startswith(f"{MODELS}/"):
        _validate(openai.types.Model, body)
    else:
        _validate(WHOLE[path], _as_typed(body))


def check_event(path: str, name: str | None, event: Any) -> None:
    if (path == ANTHROPICS and name == "error") or ("error" in event and name is None):
        check_error(path, event)
        return
    if name is not None and name != event["type"]:
        raise ValueError(f"an event named {name} is a {event['type']}")
    _validate(_event_type(EVENTS[path], event), _as_typed(event))


def check_error(path: str, body: Any) -> None:
    if path.startswith(ANTHROPICS):
        _validate(anthropic.types.ErrorResponse, body)
    else:
        _validate(ErrorObject, body["error"])


def events(text: str) -> Iterator[tuple[str | None, Any]]:
    """Name and data of each event that was sent to its end; ``[DONE]`` is the last where there is one."""
    *whole, _ = text.split("\n\n")
    for i, event in enumerate(whole):
        fields = dict(line.split(": ", 1) for line in event.split("\n") if not line.startswith(":"))
        if fields.get("data") == DONE:
            if i + 1 < len(whole):
                raise ValueError(f"events after {DONE}")
        elif fields:
            yield fields.get("event"), json.loads(fields["data"])


def _event_type(kind: Any, event: Any) -> Any:
    """Member of the union ``kind`` that ``event`` names; ``kind`` itself where it is none.

    The clients choose by ``type``, too. Pydantic validates a long event against each of the 59 members instead, twice.
    """
    members = _members(kind)
    if not members:
        return kind
    if event["type"] not in members:
        raise ValueError(f"no event has the type {event['type']!r}: {', '.join(members)}")
    return members[event["type"]]


@cache
def _members(kind: Any) -> Mapping[str, Any]:
    """Members of a union of models by the values of their field ``type``."""
    union = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    found: dict[str, Any] = {}
    for member in get_args(union):
        for value in get_args(member.model_fields["type"].annotation):
            assert value not in found, f"two members of {kind} are {value}"
            found[value] = member
    return found


def _validate(kind: Any, value: Any) -> None:
    _adapter(kind).validate_json(json.dumps(value), strict=True)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _as_typed(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as OpenAI's client presents it.

    The client decodes vectors itself, and its types of texts have no null where the API has one, in chunks before the
    last and of first tokens.
    """
    if answer.get("object") == "list":
        return answer | {"data": [each | {"embedding": _vector(each["embedding"])} for each in answer["data"]]}
    if answer.get("object") != "text_completion":
        return answer
    choices = []
    for choice in answer["choices"]:
        logprobs = choice["logprobs"]
        if logprobs is not None:
            logprobs = logprobs | {name: [each for each in logprobs[name] if each is not None]
                           for name in ("token_logprobs", "top_logprobs")}  # fmt: skip
        choices.append(choice | {"finish_reason": choice["finish_reason"] or "stop", "logprobs": logprobs})
    return answer | {"choices": choices}


def _vector(embedding: str | list[float]) -> list[float]:
    return array("f", base64.b64decode(embedding)).tolist() if isinstance(embedding, str) else embedding
