"""What clients get: a message, its blocks, and the events of a stream."""

from typing import Any, Literal

from pydantic import BaseModel

StopReason = Literal["end_turn", "max_tokens", "model_context_window_exceeded", "stop_sequence", "tool_use"]


class TextOutput(BaseModel):
    type: Literal["text"] = "text"
    text: str


class ThinkingOutput(BaseModel):
    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str


class ToolUseOutput(BaseModel):
    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


OutputBlock = TextOutput | ThinkingOutput | ToolUseOutput


class MessageUsage(BaseModel):
    """``input_tokens`` are those of the prompt that the cache did not have: both together are the prompt.

    https://docs.claude.com/en/docs/build-with-claude/prompt-caching. Writing costs nothing here, so none is counted.
    """

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int


class MessageObject(BaseModel):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[OutputBlock] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class TokenCount(BaseModel):
    """Answer of ``POST /v1/messages/count_tokens``."""

    input_tokens: int


class MessageStart(BaseModel):
    type: Literal["message_start"] = "message_start"
    message: MessageObject


class BlockStart(BaseModel):
    type: Literal["content_block_start"] = "content_block_start"
    index: int
    content_block: OutputBlock


class TextDelta(BaseModel):
    type: Literal["text_delta"] = "text_delta"
    text: str


class ThinkingDelta(BaseModel):
    type: Literal["thinking_delta"] = "thinking_delta"
    thinking: str


class SignatureDelta(BaseModel):
    type: Literal["signature_delta"] = "signature_delta"
    signature: str


class InputDelta(BaseModel):
    type: Literal["input_json_delta"] = "input_json_delta"
    partial_json: str


BlockDelta = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockDeltaEvent(BaseModel):
    type: Literal["content_block_delta"] = "content_block_delta"
    index: int
    delta: BlockDelta


class BlockStop(BaseModel):
    type: Literal["content_block_stop"] = "content_block_stop"
    index: int


class Stopped(BaseModel):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(BaseModel):
    type: Literal["message_delta"] = "message_delta"
    delta: Stopped
    usage: MessageUsage


class MessageStop(BaseModel):
    type: Literal["message_stop"] = "message_stop"


class ErrorDetail(BaseModel):
    type: str
    message: str


class ErrorEvent(BaseModel):
    """The end of a stream that failed, and the body of every response that is none of 2xx.

    Made by :func:`paternoster_http.errors.anthropic_errors.error_body`, which has the types.
    """

    type: Literal["error"] = "error"
    error: ErrorDetail
    request_id: str | None = None


MessageEvent = MessageStart | BlockStart | BlockDeltaEvent | BlockStop | MessageDelta | MessageStop | ErrorEvent
