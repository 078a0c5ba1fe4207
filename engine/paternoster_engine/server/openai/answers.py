"""The two shapes of a response, chat and text, whole and in chunks."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import BaseModel

from paternoster_engine.core.request import FinishReason
from paternoster_engine.server.continuation.stream_call import created_time, new_hex
from paternoster_engine.server.generation.generation import AnsweredPrompt, Generation, Usage
from paternoster_engine.server.generation.output_text import SequenceDelta
from paternoster_engine.server.openai.choice_events import ChoiceEvents
from paternoster_engine.server.openai.logprobs import ChatLogprobs, LogprobsWriter
from paternoster_engine.server.openai.objects import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChunkChoice,
    CompletionTokensDetails,
    Delta,
    FinishReasonName,
    PromptTokensDetails,
    TextChoice,
    TextCompletion,
    UsageObject,
)
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest, GenerationRequest
from paternoster_engine.server.state import ServedModel


class ApiResponse(Protocol):
    """Builds the objects of one API call."""

    id: str

    async def build_answer(
        self, texts: Sequence[SequenceDelta], usage: Usage, prompts: Sequence[AnsweredPrompt]
    ) -> BaseModel: ...

    def build_opening(self, usage: Usage | None, prompts: Sequence[AnsweredPrompt]) -> list[BaseModel]:
        """Chunks that come before any text; ``usage``: before it, if each chunk has it."""
        ...

    async def build_chunk(self, index: int, delta: SequenceDelta, usage: Usage | None) -> BaseModel | None:
        """None where there is nothing to send yet; ``usage``: so far, if each chunk has it."""
        ...

    def build_closing(self, usage: Usage) -> BaseModel:
        """The chunk without choices that has the usage."""
        ...


class ChatResponse:
    """``chat.completion`` and ``chat.completion.chunk``."""

    def __init__(self, name: str, served: ServedModel, body: ChatCompletionRequest) -> None:
        """``name``: the ``id`` of the response."""
        form = served.answers.format
        self.id = name
        self._model, self._fingerprint = served.name, served.fingerprint
        self._reasons = form.reasons
        self._choices = [
            ChoiceEvents(
                lambda: form.call_id(new_hex()),
                parallel=body.parallel_tool_calls,
                reasoning=body.include_reasoning,
                before=body.echoed_text,
            )
            for _ in range(body.n)
        ]
        self._body = body
        self._writer = LogprobsWriter(served.answers.tokenizer, as_ids=body.return_tokens_as_token_ids)
        self._created = created_time()

    async def build_answer(
        self, texts: Sequence[SequenceDelta], usage: Usage, prompts: Sequence[AnsweredPrompt]
    ) -> ChatCompletion:
        answer = ChatCompletion(
            id=self.id,
            object="chat.completion",
            created=self._created,
            model=self._model,
            system_fingerprint=self._fingerprint,
            choices=[
                ChatChoice(
                    index=index,
                    message=self._choices[index].write_message(delta.events),
                    logprobs=await self._chat_logprobs(delta),
                    finish_reason=self._finish_reason(index, delta.finish_reason),
                    **_token_ids_field(self._body, delta),
                )
                for index, delta in enumerate(texts)
            ],
            usage=self._usage_object(usage),
        )
        if self._body.prompt_logprobs is not None:
            answer.prompt_logprobs = await self._writer.write_prompt(prompts[0].logprobs, self._body.prompt_logprobs)
        if self._body.return_token_ids:
            answer.prompt_token_ids = prompts[0].token_ids
        return answer

    def build_opening(self, usage: Usage | None, prompts: Sequence[AnsweredPrompt]) -> list[BaseModel]:
        delta = Delta(role="assistant", content=self._body.echoed_text)
        usage_field = {} if usage is None else {"usage": self._usage_object(usage)}
        chunks = [
            self._chat_chunk([ChunkChoice(index=index, delta=delta, logprobs=None, finish_reason=None)], usage_field)
            for index in range(self._body.n)
        ]
        if self._body.return_token_ids:
            chunks[0].prompt_token_ids = prompts[0].token_ids
        return [*chunks]

    async def build_chunk(self, index: int, delta: SequenceDelta, usage: Usage | None) -> ChatCompletionChunk | None:
        content = self._choices[index].write_delta(delta.events)
        reason = self._finish_reason(index, delta.finish_reason)
        logprobs = await self._chat_logprobs(delta)
        if not content.model_fields_set:
            if reason is None and not delta.tokens and not delta.token_ids:
                return None
            content.content = ""
        choice = ChunkChoice(
            index=index, delta=content, logprobs=logprobs, finish_reason=reason, **_token_ids_field(self._body, delta)
        )
        return self._chat_chunk([choice], {} if usage is None else {"usage": self._usage_object(usage)})

    def build_closing(self, usage: Usage) -> ChatCompletionChunk:
        return self._chat_chunk([], {"usage": self._usage_object(usage)})

    def _usage_object(self, usage: Usage) -> UsageObject:
        counts = _usage_object(usage)
        if self._reasons:
            counts.completion_tokens_details = CompletionTokensDetails(reasoning_tokens=usage.reasoning_tokens)
        return counts

    def _finish_reason(self, index: int, reason: FinishReason | None) -> FinishReasonName | None:
        if reason is FinishReason.STOP and self._choices[index].num_calls:
            return "tool_calls"
        return _finish_reason_name(reason)

    async def _chat_logprobs(self, delta: SequenceDelta) -> ChatLogprobs | None:
        return await self._writer.write_chat(delta.tokens) if self._body.logprobs else None

    def _chat_chunk(self, choices: list[ChunkChoice], usage: Mapping[str, Any]) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self.id,
            object="chat.completion.chunk",
            created=self._created,
            model=self._model,
            system_fingerprint=self._fingerprint,
            choices=choices,
            **usage,
        )


class TextResponse:
    """``text_completion``, whole and in chunks."""

    def __init__(self, name: str, served: ServedModel, body: CompletionRequest) -> None:
        """``name``: the ``id`` of the response."""
        self.id = name
        self._model, self._fingerprint = served.name, served.fingerprint
        self._body = body
        self._writer = LogprobsWriter(served.answers.tokenizer, as_ids=body.return_tokens_as_token_ids)
        self._created = created_time()
        self._pending_prompt_ids: dict[int, Sequence[int]] = {}
        """Prompts of choices that have not begun, if the call requests ids."""

    async def build_answer(
        self, texts: Sequence[SequenceDelta], usage: Usage, prompts: Sequence[AnsweredPrompt]
    ) -> TextCompletion:
        self._store_prompt_ids(prompts)
        choices = [await self._text_choice(index, delta) for index, delta in enumerate(texts)]
        if self._body.prompt_logprobs is not None:
            logprobs = [
                await self._writer.write_prompt(prompt.logprobs, self._body.prompt_logprobs) for prompt in prompts
            ]
            for choice in choices:
                choice.prompt_logprobs = logprobs[choice.index // self._body.n]
        return self._text_completion(choices, usage=_usage_object(usage))

    def build_opening(self, usage: Usage | None, prompts: Sequence[AnsweredPrompt]) -> list[BaseModel]:
        self._store_prompt_ids(prompts)
        return []

    async def build_chunk(self, index: int, delta: SequenceDelta, usage: Usage | None) -> TextCompletion:
        return self._text_completion([await self._text_choice(index, delta)], **_usage_field(usage))

    def build_closing(self, usage: Usage) -> TextCompletion:
        return self._text_completion([], usage=_usage_object(usage))

    async def _text_choice(self, index: int, delta: SequenceDelta) -> TextChoice:
        num_top = self._body.logprobs
        logprobs = None if num_top is None else await self._writer.write_text(delta.tokens, num_top)
        choice = TextChoice(
            index=index,
            text=delta.text,
            logprobs=logprobs,
            finish_reason=_finish_reason_name(delta.finish_reason),
            **_token_ids_field(self._body, delta),
        )
        if index in self._pending_prompt_ids:
            choice.prompt_token_ids = self._pending_prompt_ids.pop(index)
        return choice

    def _store_prompt_ids(self, prompts: Sequence[AnsweredPrompt]) -> None:
        if self._body.return_token_ids:
            each = [prompt.token_ids for prompt in prompts for _ in range(self._body.n)]
            self._pending_prompt_ids = dict(enumerate(each))

    def _text_completion(self, choices: list[TextChoice], **usage: UsageObject) -> TextCompletion:
        return TextCompletion(
            id=self.id,
            object="text_completion",
            created=self._created,
            model=self._model,
            system_fingerprint=self._fingerprint,
            choices=choices,
            **usage,
        )


async def response_chunks(
    response: ApiResponse,
    generation: Generation,
    first: tuple[int, SequenceDelta],
    later: AsyncIterator[tuple[int, SequenceDelta]],
    body: GenerationRequest,
) -> AsyncIterator[BaseModel]:
    """The chunks of a stream whose first delta is known."""

    async def make_chunk(index: int, delta: SequenceDelta) -> BaseModel | None:
        return await response.build_chunk(index, delta, generation.usage if body.continuous_usage else None)

    before = replace(generation.usage, completion_tokens=0, reasoning_tokens=0) if body.continuous_usage else None
    for opening in response.build_opening(before, generation.prompts):
        yield opening
    if (chunk := await make_chunk(*first)) is not None:
        yield chunk
    async for index, delta in later:
        if (chunk := await make_chunk(index, delta)) is not None:
            yield chunk
    if body.include_usage:
        yield response.build_closing(generation.usage)


def _finish_reason_name(reason: FinishReason | None) -> FinishReasonName | None:
    match reason:
        case FinishReason.STOP:
            return "stop"
        case FinishReason.LENGTH:
            return "length"
    return None


def _token_ids_field(body: GenerationRequest, delta: SequenceDelta) -> dict[str, Any]:
    """A field that is left out unless the call requests it."""
    return {"token_ids": delta.token_ids} if body.return_token_ids else {}


def _usage_field(usage: Usage | None) -> dict[str, UsageObject]:
    """A field that is left out where there is no usage to report."""
    return {} if usage is None else {"usage": _usage_object(usage)}


def _usage_object(usage: Usage) -> UsageObject:
    return UsageObject(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=usage.cached_tokens),
    )
