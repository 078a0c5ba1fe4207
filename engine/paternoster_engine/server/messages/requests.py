"""What clients may ask for: ``POST /v1/messages`` and ``/v1/messages/count_tokens``.

Images, documents and tools that a server runs itself are refused by name. Marks of what to cache are taken and not
used: every prompt is cached.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from paternoster_engine.server.openai.fields.body import MAX_MESSAGES, Body, StopStrings, Text, only
from paternoster_engine.server.openai.fields.template import MAX_TOOLS, JsonObject
from paternoster_engine.server.translation.fields import PassedFields

MIN_BUDGET = 1024
"""Anthropic's, of tokens to think with."""

MAX_EDITS = 16
"""Of ``context_management``."""
CLEAR_THINKING = "clear_thinking_"
"""How types of edits begin that leave out old thinking; a date follows."""

BlockType = Literal["text", "tool_use", "tool_result", "thinking", "redacted_thinking"]

NEEDED: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking",),
    "redacted_thinking": (),
}
"""Fields that a block of each type cannot be without."""
OF_ROLE: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "tool_result"),
    "system": ("text",),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
}
"""Types of blocks in a message of each role."""


class CacheMarked(Body):
    cache_control: Any = Field(default=None, description="taken and not used: every prompt is cached")


class TextBlock(CacheMarked):
    type: Literal["text"]
    text: Text
    citations: Any = Field(default=None, description="taken and not used")


Texts = Annotated[
    list[TextBlock],
    BeforeValidator(
        lambda value: [{"type": "text", "text": value}] if isinstance(value, str) else value,
        json_schema_input_type=str | list[TextBlock],
    ),
    Field(max_length=MAX_MESSAGES),
]


class ContentBlock(CacheMarked):
    """A piece of a message: which fields it has depends on its type."""

    type: BlockType
    text: Text | None = None
    citations: Any = Field(default=None, description="taken and not used")
    id: Text | None = None
    name: Text | None = None
    input: JsonObject | None = None
    caller: Any = Field(default=None, description="taken and not used")
    tool_use_id: Text | None = None
    content: Texts = Field(default_factory=list, description="of a tool's result")
    is_error: bool = Field(default=False, description="the model is told so in a word before the result")
    thinking: Text | None = None
    signature: Text | None = Field(default=None, description="taken and not checked")
    data: Text | None = Field(default=None, description="of redacted thinking, which is left out")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for field in NEEDED[self.type]:
            if getattr(self, field) is None:
                raise ValueError(f"a block of type {self.type} needs {field}")
        return self


class Message(Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[
        list[ContentBlock],
        BeforeValidator(
            lambda value: [{"type": "text", "text": value}] if isinstance(value, str) else value,
            json_schema_input_type=str | list[ContentBlock],
        ),
        Field(max_length=MAX_MESSAGES),
    ]

    @field_validator("content")
    @classmethod
    def _of_its_role(cls, value: list[ContentBlock], info: ValidationInfo) -> list[ContentBlock]:
        role = info.data.get("role")
        if role is None:
            return value
        if not value and role != "assistant":
            raise ValueError("must not be empty")
        results_over = False
        for index, block in enumerate(value):
            if block.type not in OF_ROLE[role]:
                raise ValueError(f"block {index}: a message of role {role} has no blocks of type {block.type}")
            if block.type == "tool_result" and results_over:
                raise ValueError(f"block {index}: the tool_result blocks of a message must come first")
            results_over = block.type != "tool_result"
        return value


def _can_go_on(messages: list[Message]) -> list[Message]:
    last = messages[-1]
    begun = last.role == "assistant" and last.content and last.content[-1].type == "text"
    if last.role != "user" and not begun:
        raise ValueError("the last must be of role user, or of role assistant and end with a text to go on with")
    return messages


class CustomTool(CacheMarked):
    type: Literal["custom"] = "custom"
    name: Text
    description: Text | None = None
    input_schema: JsonObject
    strict: bool | None = None


class ToolChoice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: Text | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _named(self) -> Self:
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("type tool needs name, and no other type has one")
        return self


class Thinking(Body):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(
        default=None, ge=MIN_BUDGET, description="of type enabled: tokens of thinking, after which it is ended"
    )
    display: Literal["summarized", "omitted"] = Field(
        default="summarized", description="omitted: what the model thinks is not told, but counted"
    )

    @model_validator(mode="after")
    def _budgeted(self) -> Self:
        if (self.type == "enabled") != (self.budget_tokens is not None):
            raise ValueError("type enabled needs budget_tokens, and no other type has any")
        return self


def _of_thinking(edit: str) -> str:
    if not edit.startswith(CLEAR_THINKING):
        raise ValueError(f"not supported by this engine: only edits of type {CLEAR_THINKING}* are")
    return edit


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")


class OutputConfig(Body):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class MessageMetadata(Body):
    user_id: Text | None = None


class ContextEdit(Body):
    """An edit of the conversation before the model reads it; others than of thinking are refused by their types."""

    type: Annotated[str, AfterValidator(_of_thinking)] = Field(description="one that begins with clear_thinking_")
    keep: Any = Field(default=None, description="taken and not used: the template decides what of thinking is shown")


class ContextManagement(Body):
    edits: list[ContextEdit] = Field(default_factory=list, max_length=MAX_EDITS)


class CountTokensRequest(PassedFields, CacheMarked):
    """Body of ``POST /v1/messages/count_tokens``: whatever decides what the prompt is."""

    model: Text | None = Field(default=None, description="served model (default: the one there is)")
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES), AfterValidator(_can_go_on)]
    system: Texts = Field(default_factory=list)
    tools: list[CustomTool] = Field(default_factory=list, max_length=MAX_TOOLS)
    tool_choice: ToolChoice = Field(default_factory=lambda: ToolChoice(type="auto"))
    thinking: Thinking | None = Field(default=None, description="default: what the model's template has")
    output_config: OutputConfig = Field(default_factory=OutputConfig)
    output_format: OutputFormat | None = Field(default=None, description="older name of output_config.format")

    mcp_servers: Annotated[Any, only([])] = Field(default_factory=list)
    context_management: ContextManagement = Field(default_factory=ContextManagement)


class MessagesRequest(CountTokensRequest):
    """Body of ``POST /v1/messages``."""

    max_tokens: int = Field(ge=1)
    stop_sequences: StopStrings = Field(default_factory=list)
    stream: bool = False
    metadata: MessageMetadata = Field(default_factory=MessageMetadata)
    service_tier: Literal["auto", "standard_only"] = Field(default="auto", description="of no effect")
    inference_geo: Text | None = Field(default=None, description="of no effect")

    container: Annotated[Any, only()] = None
    speed: Annotated[Any, only("standard")] = "standard"

    @model_validator(mode="after")
    def _some_left(self) -> Self:
        budget = None if self.thinking is None else self.thinking.budget_tokens
        if budget is not None and budget >= self.max_tokens:
            raise ValueError(f"max_tokens must be above thinking.budget_tokens, {budget} (got {self.max_tokens})")
        return self
