"""What clients may ask for: ``POST /v1/messages`` and ``/v1/messages/count_tokens``.

Tools that a server runs itself are ignored, with what they wrote into earlier turns; images and documents that are not
text are refused by name. Marks of what to cache are taken and not used: every prompt is cached.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from paternoster_engine.server.messages.client_tools import CLIENT_TOOLS
from paternoster_engine.server.openai.fields.body import (
    MAX_MESSAGES,
    Body,
    StopStrings,
    Text,
    accept_hint,
    allow_only,
    text_or_list,
)
from paternoster_engine.server.openai.fields.template import MAX_TOOLS, JsonObject
from paternoster_engine.server.translation.fields import PassedFields, TypedBody

MIN_BUDGET = 1024
"""Anthropic's, of tokens to think with."""

MAX_EDITS = 16
"""Edits of ``context_management``."""
CLEAR_THINKING = "clear_thinking_"
"""How types of edits begin that leave out old thinking; a date follows."""
SEARCH_TOOLS = ("tool_search_tool_",)
"""How types of tools begin with which a server would look for deferred tools."""

ServedBlock = Literal[
    "text", "document", "search_result", "tool_use", "tool_result", "thinking", "redacted_thinking", "tool_addition",
    "tool_removal",
]  # fmt: skip
IgnoredBlock = Literal[
    "server_tool_use", "mcp_tool_use", "mcp_tool_result", "web_search_tool_result", "web_fetch_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
    "tool_search_tool_result", "advisor_tool_result", "mcp_tool_listing", "container_upload",
]  # fmt: skip
"""What tools that a server runs wrote into earlier turns."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "document": ("source",),
    "search_result": ("source",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking",),
    "redacted_thinking": (),
    "tool_addition": ("tool",),
    "tool_removal": ("tool",),
}
"""Fields that a block of each type cannot be without."""
OF_ROLE: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "document", "search_result", "tool_result", "container_upload"),
    "system": ("text", "tool_addition", "tool_removal"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking", *get_args(IgnoredBlock)),
}
"""Types of blocks in a message of each role."""


class CacheMarked(Body):
    cache_control: Any = Field(default=None, description="taken and not used: every prompt is cached")


def _blocks_of(type: Any) -> BeforeValidator:
    """A text is one block."""
    return text_or_list(type, MAX_MESSAGES, lambda text: [{"type": "text", "text": text}])


class TextBlock(CacheMarked):
    type: Literal["text"]
    text: Text
    citations: Any = Field(default=None, description="taken and not used")


Texts = Annotated[
    list[TextBlock],
    _blocks_of(TextBlock),
    Field(max_length=MAX_MESSAGES),
]


class DocumentSource(Body):
    """Text of a document; files of other kinds and files that are kept elsewhere are refused by their types."""

    type: Literal["text", "content"]
    media_type: Literal["text/plain"] = "text/plain"
    data: Text | None = None
    content: Texts = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_needed_fields(self) -> Self:
        field = {"text": "data", "content": "content"}[self.type]
        if not getattr(self, field):
            raise ValueError(f"a source of type {self.type} needs {field}")
        return self


def _parse_source(value: Any, info: ValidationInfo) -> Any:
    if "type" not in info.data:
        # An image, whose type is refused: there is no more to say of it.
        return None
    return DocumentSource.model_validate(value) if isinstance(value, dict) else value


class SourcedBlock(CacheMarked):
    """What a document and a search's result have besides their texts."""

    type: Text
    title: Text | None = None
    context: Text | None = Field(default=None, description="of a document")
    source: Annotated[Text | DocumentSource | None, BeforeValidator(_parse_source)] = Field(
        default=None, description="of a search's result a text, of a document its text"
    )

    def check_source(self, type: str) -> None:
        """Raises ``ValueError`` for a source of another type of block."""
        if type == "search_result" and not isinstance(self.source, str):
            raise ValueError("the source of a search_result must be a text")
        if type == "document" and not isinstance(self.source, DocumentSource):
            raise ValueError("the source of a document must be an object")


class ResultBlock(SourcedBlock):
    """A piece of a tool's result: which fields it has depends on its type."""

    type: Literal["text", "tool_reference", "search_result", "document"]
    text: Text | None = None
    citations: Any = Field(default=None, description="taken and not used")
    tool_name: Text | None = Field(default=None, description="of a reference: a tool that is offered from here on")
    content: Texts = Field(default_factory=list, description="of a search's result")

    @model_validator(mode="after")
    def _check_needed_fields(self) -> Self:
        field = {"text": "text", "tool_reference": "tool_name"}.get(self.type, "source")
        if getattr(self, field) is None:
            raise ValueError(f"a block of type {self.type} needs {field}")
        self.check_source(self.type)
        return self


Results = Annotated[
    list[ResultBlock],
    _blocks_of(ResultBlock),
    Field(max_length=MAX_MESSAGES),
]


class ToolReference(Body):
    """A tool of ``tools``."""

    type: Literal["tool_reference"]
    name: Text


class ContentBlock(TypedBody, SourcedBlock):
    """A piece of a message: which fields it has depends on its type."""

    type: Literal[ServedBlock, IgnoredBlock]
    text: Text | None = None
    citations: Any = Field(default=None, description="taken and not used")
    id: Text | None = None
    name: Text | None = None
    input: JsonObject | None = None
    caller: Any = Field(default=None, description="taken and not used")
    tool_use_id: Text | None = None
    content: Results = Field(default_factory=list, description="of a result of a tool or a search")
    is_error: bool = Field(default=False, description="the prompt says before the result that it is an error")
    thinking: Text | None = None
    signature: Text | None = Field(default=None, description="taken and not checked")
    data: Text | None = Field(default=None, description="of redacted thinking, which is left out")
    tool: ToolReference | None = Field(default=None, description="that is offered from here on, or no more")

    @classmethod
    def serves_type(cls, type: Any) -> bool:
        return type not in get_args(IgnoredBlock)

    @model_validator(mode="after")
    def _check_needed_fields(self) -> Self:
        for field in NEEDED.get(self.type, ()):
            if getattr(self, field) is None:
                raise ValueError(f"a block of type {self.type} needs {field}")
        self.check_source(self.type)
        return self


class Effort(Body):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class Message(Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[
        list[ContentBlock],
        _blocks_of(ContentBlock),
        Field(max_length=MAX_MESSAGES, validate_default=True),
    ] = Field(default_factory=list)
    clear_at: Literal["next_user_message", "never"] = Field(
        default="never", description="of a system message: when the model sees it no more"
    )
    output_config: Effort = Field(default_factory=Effort, description="of a system message: the effort from here on")

    @field_validator("content")
    @classmethod
    def _of_its_role(cls, value: list[ContentBlock], info: ValidationInfo) -> list[ContentBlock]:
        role = info.data.get("role")
        if role is None:
            return value
        if not value and role == "user":
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
    """Messages of role system may stand anywhere, as Claude Code has them behind the user's."""
    last = next((message for message in reversed(messages) if message.role != "system"), None)
    if last is None:
        raise ValueError("there must be one of role user")
    begun = last is messages[-1] and last.content and last.content[-1].type == "text"
    if last.role != "user" and not begun:
        raise ValueError("the last must be of role user, or of role assistant and end with a text to go on with")
    return messages


class MessagesTool(TypedBody, CacheMarked):
    """A tool that the client runs, its own or one that Anthropic defines; those that a server would run are ignored."""

    type: Text = "custom"
    name: Text | None = None
    description: Text | None = None
    input_schema: JsonObject | None = None
    strict: bool | None = None
    defer_loading: bool = Field(default=False, description="offered once a result or a system message refers to it")
    allowed_callers: Any = Field(default=None, description="taken and not used: the model alone calls")
    max_characters: Any = Field(default=None, description="taken and not used: the client cuts what it views")
    eager_input_streaming: Any = Field(default=None, description="taken and not used: inputs are always streamed")

    @classmethod
    def serves_type(cls, type: Any) -> bool:
        return type == "custom" or (isinstance(type, str) and type in CLIENT_TOOLS)

    @model_validator(mode="after")
    def _check_needed_fields(self) -> Self:
        if self.type == "custom" and (self.name is None or self.input_schema is None):
            raise ValueError("a tool of type custom needs name and input_schema")
        return self


class ToolChoice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: Text | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("type tool needs name, and no other type has one")
        return self


class Thinking(Body):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(
        default=None, ge=MIN_BUDGET, description="of type enabled: tokens of thinking, after which it is ended"
    )
    display: Annotated[Text, accept_hint("summarized", "omitted")] = Field(
        default="summarized",
        description="omitted: the answer has no reasoning, though its tokens count; others are ignored",
    )

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if (self.type == "enabled") != (self.budget_tokens is not None):
            raise ValueError("type enabled needs budget_tokens, and no other type has any")
        return self


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")


class OutputConfig(Effort):
    format: OutputFormat | None = None


class MessageMetadata(Body):
    user_id: Text | None = None


class ContextEdit(TypedBody):
    """An edit of the conversation before the model reads it: but for thinking it is ignored."""

    kept_thoughts: Any = Field(
        default=None, alias="keep", description="taken and not used: the template decides what of thinking is shown"
    )

    @classmethod
    def serves_type(cls, type: Any) -> bool:
        return isinstance(type, str) and type.startswith(CLEAR_THINKING)


class ContextManagement(Body):
    edits: list[ContextEdit] = Field(default_factory=list, max_length=MAX_EDITS)


class CountTokensRequest(PassedFields, CacheMarked):
    """Body of ``POST /v1/messages/count_tokens``: whatever decides what the prompt is."""

    model: Text | None = Field(default=None, description="served model (default: the one there is)")
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES), AfterValidator(_can_go_on)]
    system: Texts = Field(default_factory=list)
    tools: list[MessagesTool] = Field(default_factory=list, max_length=MAX_TOOLS)
    tool_choice: ToolChoice = Field(default_factory=lambda: ToolChoice(type="auto"))
    thinking: Thinking | None = Field(default=None, description="default: what the model's template has")
    output_config: OutputConfig = Field(default_factory=OutputConfig)
    output_format: OutputFormat | None = Field(default=None, description="older name of output_config.format")

    mcp_servers: Annotated[list[JsonObject], accept_hint([])] = Field(
        default_factory=list, max_length=MAX_TOOLS, description="no server is called: ignored"
    )
    compaction: Annotated[Any, allow_only()] = Field(default=None, description="a summary in place of an answer")
    thread: Annotated[Any, allow_only()] = Field(default=None, description="a conversation that is kept elsewhere")
    context_management: ContextManagement = Field(default_factory=ContextManagement)


class MessagesRequest(CountTokensRequest):
    """Body of ``POST /v1/messages``."""

    max_tokens: int = Field(ge=1)
    stop_sequences: StopStrings = Field(default_factory=list)
    stream: bool = False
    metadata: MessageMetadata = Field(default_factory=MessageMetadata)
    service_tier: Annotated[Text, accept_hint("auto", "standard_only")] = Field(
        default="auto", description="of no effect; others are ignored"
    )
    inference_geo: Text | None = Field(default=None, description="of no effect")

    container: Annotated[Any, accept_hint(None)] = Field(
        default=None, description="of tools that a server runs: ignored"
    )
    speed: Annotated[Text, accept_hint("standard")] = Field(default="standard", description="others are ignored")

    @model_validator(mode="after")
    def _some_left(self) -> Self:
        budget = None if self.thinking is None else self.thinking.budget_tokens
        if budget is not None and budget >= self.max_tokens:
            raise ValueError(f"max_tokens must be above thinking.budget_tokens, {budget} (got {self.max_tokens})")
        return self
