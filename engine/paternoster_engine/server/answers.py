"""The two shapes of an answer, chat and text, whole and in chunks."""

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from pydantic import BaseModel

from paternoster_engine.core.request import FinishReason
from paternoster_engine.server.generation import Generation, Usage
from paternoster_engine.server.openai_objects import (
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChunkChoice,
    Delta,
    FinishReasonName,
    TextChoice,
    TextCompletion,
    UsageObject,
)
from paternoster_engine.server.output_text import Piece


class Answer(Protocol):
    """Builds the objects of one API call."""

    id: str

    def whole(self, texts: Sequence[Piece], usage: Usage) -> BaseModel: ...

    def opening(self) -> list[BaseModel]:
        """Chunks that come before any text."""
        ...

    def chunk(self, index: int, piece: Piece) -> BaseModel: ...

    def closing(self, usage: Usage) -> BaseModel:
        """The chunk without choices that tells the usage."""
        ...


class ChatAnswer:
    """``chat.completion`` and ``chat.completion.chunk``."""

    def __init__(self, model: str, choices: int = 1) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self._model = model
        self._choices = choices
        self._created = int(time.time())

    def whole(self, texts: Sequence[Piece], usage: Usage) -> ChatCompletion:
        return ChatCompletion(
            id=self.id,
            object="chat.completion",
            created=self._created,
            model=self._model,
            choices=[
                ChatChoice(
                    index=index,
                    message=AssistantMessage(role="assistant", content=piece.text),
                    logprobs=None,
                    finish_reason=_name(piece.finish_reason),
                )
                for index, piece in enumerate(texts)
            ],
            usage=_usage(usage),
        )

    def opening(self) -> list[BaseModel]:
        return [self._chunk(index, Delta(role="assistant", content=""), Piece("")) for index in range(self._choices)]

    def chunk(self, index: int, piece: Piece) -> ChatCompletionChunk:
        return self._chunk(index, Delta(content=piece.text), piece)

    def closing(self, usage: Usage) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self.id,
            object="chat.completion.chunk",
            created=self._created,
            model=self._model,
            choices=[],
            usage=_usage(usage),
        )

    def _chunk(self, index: int, delta: Delta, piece: Piece) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self.id,
            object="chat.completion.chunk",
            created=self._created,
            model=self._model,
            choices=[ChunkChoice(index=index, delta=delta, logprobs=None, finish_reason=_name(piece.finish_reason))],
        )


class TextAnswer:
    """``text_completion``, whole and in chunks."""

    def __init__(self, model: str) -> None:
        self.id = f"cmpl-{uuid.uuid4().hex}"
        self._model = model
        self._created = int(time.time())

    def whole(self, texts: Sequence[Piece], usage: Usage) -> TextCompletion:
        return self._completion(
            [self._choice(index, piece) for index, piece in enumerate(texts)],
            usage=_usage(usage),
        )

    def opening(self) -> list[BaseModel]:
        return []

    def chunk(self, index: int, piece: Piece) -> TextCompletion:
        return self._completion([self._choice(index, piece)])

    def closing(self, usage: Usage) -> TextCompletion:
        return self._completion([], usage=_usage(usage))

    def _choice(self, index: int, piece: Piece) -> TextChoice:
        return TextChoice(index=index, text=piece.text, logprobs=None, finish_reason=_name(piece.finish_reason))

    def _completion(self, choices: list[TextChoice], **usage: UsageObject) -> TextCompletion:
        return TextCompletion(
            id=self.id,
            object="text_completion",
            created=self._created,
            model=self._model,
            choices=choices,
            **usage,
        )


async def frames(
    answer: Answer,
    generation: Generation,
    first: tuple[int, Piece],
    later: AsyncIterator[tuple[int, Piece]],
    include_usage: bool,
) -> AsyncIterator[BaseModel]:
    """The chunks of a stream whose first piece is known."""
    for opening in answer.opening():
        yield opening
    yield answer.chunk(*first)
    async for index, piece in later:
        yield answer.chunk(index, piece)
    if include_usage:
        yield answer.closing(generation.usage)


def _name(reason: FinishReason | None) -> FinishReasonName | None:
    match reason:
        case FinishReason.STOP:
            return "stop"
        case FinishReason.LENGTH:
            return "length"
    return None


def _usage(usage: Usage) -> UsageObject:
    return UsageObject(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )
