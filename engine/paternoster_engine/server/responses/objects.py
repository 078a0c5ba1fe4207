"""What clients get: a response, its items, and the events of a stream."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from paternoster_engine.server.openai.logprobs import ChatTokenLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ErrorCode = Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []
    logprobs: list[ChatTokenLogprob] = []


class ReasoningText(BaseModel):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class MessageItem(BaseModel):
    id: str
    type: Literal["message"] = "message"
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class ReasoningItem(BaseModel):
    id: str
    type: Literal["reasoning"] = "reasoning"
    status: ItemStatus
    summary: list[Any] = []
    content: list[ReasoningText]


class NamedCallItem(BaseModel):
    """A call of a tool that has a name."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    namespace: str | None = Field(default=None, exclude_if=lambda value: value is None)


class FunctionCallItem(NamedCallItem):
    type: Literal["function_call"] = "function_call"
    arguments: str


class CustomToolCallItem(NamedCallItem):
    type: Literal["custom_tool_call"] = "custom_tool_call"
    input: str


class ToolSearchCallItem(BaseModel):
    """A search that the client runs."""

    id: str
    type: Literal["tool_search_call"] = "tool_search_call"
    status: ItemStatus
    call_id: str
    execution: Literal["client"] = "client"
    arguments: dict[str, Any]


OutputItem = MessageItem | ReasoningItem | FunctionCallItem | CustomToolCallItem | ToolSearchCallItem


class InputTokensDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int = 0
    """Tokens written to the cache that a client would pay for."""


class OutputTokensDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(BaseModel):
    code: ErrorCode
    message: str


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseObject(BaseModel):
    """Repeats the request's settings as the server read them."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Literal["in_progress", "completed", "incomplete", "failed"] = "in_progress"
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: list[OutputItem] = []
    usage: ResponseUsage | None = None

    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    reasoning: dict[str, Any]
    temperature: float
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_p: float
    user: str | None
    background: bool = False
    previous_response_id: None = None
    service_tier: str = "default"
    store: bool = False
    top_logprobs: int
    truncation: str = "disabled"


class StreamEvent(BaseModel, extra="allow"):
    """Which fields it has besides depends on its type."""

    type: str
    sequence_number: int
