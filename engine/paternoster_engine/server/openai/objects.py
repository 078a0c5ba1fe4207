"""What clients get: the OpenAI API's answers. Fields are sent only where they were set."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from paternoster_engine.server.openai.logprobs import ChatLogprobs, PromptLogprobs, TextLogprobs

FinishReasonName = Literal["stop", "length", "tool_calls"]


class CompletionTokensDetails(BaseModel):
    reasoning_tokens: int


class PromptTokensDetails(BaseModel):
    cached_tokens: int


class UsageObject(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | None = None


class FunctionCall(BaseModel):
    name: str
    arguments: str


class MessageToolCall(BaseModel):
    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[MessageToolCall] | None = None


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReasonName | None
    token_ids: Sequence[int] | None = None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: UsageObject
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: Sequence[int] | None = None


class DeltaFunction(BaseModel):
    name: str | None = None
    arguments: str


class DeltaToolCall(BaseModel):
    """The first of a call has id, type and name; the arguments of all are joined."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: DeltaFunction


class Delta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[DeltaToolCall] | None = None


class ChunkChoice(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReasonName | None
    token_ids: Sequence[int] | None = None


class ChatCompletionChunk(BaseModel):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: UsageObject | None = None
    prompt_token_ids: Sequence[int] | None = None


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReasonName | None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None


class TextCompletion(BaseModel):
    """Whole answer and stream chunk alike."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: UsageObject | None = None


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "paternoster"
    root: str
    parent: str | None = None
    """Model that an adapter is for."""
    max_model_len: int
    default_parameters: dict[str, float | int]
    """Sampling settings of requests that leave them out, beside the API's own; the name is OpenRouter's."""


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Tokens(BaseModel):
    """Answer of ``POST /tokenize``."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Prompt(BaseModel):
    """Answer of ``POST /detokenize``."""

    prompt: str
