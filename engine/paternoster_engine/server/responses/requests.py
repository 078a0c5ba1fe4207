"""What clients may ask for: ``POST /v1/responses``.

Fields that only mean something where answers are kept are refused by name, as are tools that a server runs itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, field_validator, model_validator

from paternoster_engine.server.openai.fields.body import (
    MAX_LOGPROBS,
    MAX_MESSAGES,
    Body,
    StopStrings,
    Text,
    only,
    whole_characters,
)
from paternoster_engine.server.openai.fields.template import MAX_TOOLS, JsonObject
from paternoster_engine.server.translation.fields import PassedFields

MAX_METADATA = 16
"""OpenAI's limit."""

PartType = Literal["input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"]
ItemType = Literal["message", "function_call", "function_call_output", "reasoning"]

NEEDED: Mapping[str, tuple[str, ...]] = {
    "message": ("role",),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
}
"""Fields that an item of each type cannot be without."""


class InputPart(Body):
    """A piece of text; images, sounds and files are refused by the names of their types."""

    type: PartType
    text: Text = ""
    refusal: Text = ""
    annotations: Any = Field(default=None, description="taken and not used, as in an answer that is sent back")
    logprobs: Any = Field(default=None, description="taken and not used")

    @model_validator(mode="after")
    def _said(self) -> Self:
        field = "refusal" if self.type == "refusal" else "text"
        if field not in self.model_fields_set:
            raise ValueError(f"a part of type {self.type} needs {field}")
        return self

    @property
    def said(self) -> str:
        return self.text or self.refusal


def _parts_of(type: PartType) -> BeforeValidator:
    """A text is one part of ``type``."""
    return BeforeValidator(
        lambda value: [{"type": type, "text": value}] if isinstance(value, str) else value,
        json_schema_input_type=str | list[InputPart],
    )


Parts = Annotated[list[InputPart], Field(max_length=MAX_MESSAGES)]


class InputItem(Body):
    """One item of a conversation: which fields it has depends on its type."""

    type: ItemType = "message"
    id: Text | None = Field(default=None, description="taken and not used: nothing is stored")
    status: Text | None = Field(default=None, description="taken and not used")
    phase: Text | None = Field(default=None, description="taken and not used")
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Annotated[Parts, _parts_of("input_text")] = Field(default_factory=list)
    call_id: Text | None = None
    name: Text | None = None
    arguments: Text | None = None
    output: Annotated[Parts, _parts_of("input_text")] | None = None
    summary: Parts = Field(default_factory=list, description="read where a reasoning item has no content")
    encrypted_content: Any = Field(default=None, description="taken and not used: answers have none")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for field in NEEDED[self.type]:
            if getattr(self, field) is None:
                raise ValueError(f"an item of type {self.type} needs {field}")
        return self


class FunctionTool(Body):
    type: Literal["function"]
    name: Text
    description: Text | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """The one function that must be called."""

    name: str


def _choice(value: Any) -> str | NamedFunction:
    if isinstance(value, str) and value in ("none", "auto", "required"):
        return value
    if isinstance(value, dict) and value.get("type") == "function" and isinstance(value.get("name"), str):
        return NamedFunction(whole_characters(value["name"]))
    raise ValueError('must be "none", "auto", "required" or {"type": "function", "name": ...}')


class ResponseTextFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    description: Text | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.type == "json_schema" and (self.name is None or self.schema_ is None):
            raise ValueError("a format of type json_schema needs name and schema")
        return self


class TextConfig(Body):
    format: ResponseTextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = Field(default=None, description="a hint, of no effect")


class ReasoningConfig(Body):
    effort: Text | None = None
    summary: Literal["auto", "concise", "detailed"] | None = Field(
        default=None, description="of no effect: the reasoning itself is told"
    )
    generate_summary: Literal["auto", "concise", "detailed"] | None = Field(
        default=None, description="older name of summary"
    )


class ResponseStreamOptions(Body):
    include_obfuscation: Annotated[Any, only(False)] = False


class ResponsesRequest(PassedFields):
    """Body of ``POST /v1/responses``."""

    model: Text | None = Field(default=None, description="served model (default: the one there is)")
    input: Annotated[
        list[InputItem],
        BeforeValidator(
            lambda value: [{"role": "user", "content": value}] if isinstance(value, str) else value,
            json_schema_input_type=str | list[InputItem],
        ),
        Field(min_length=1, max_length=MAX_MESSAGES),
    ]
    instructions: Text | None = None
    tools: list[FunctionTool] = Field(default_factory=list, max_length=MAX_TOOLS)
    tool_choice: Annotated[
        str | NamedFunction, PlainValidator(_choice, json_schema_input_type=str | dict[str, Any])
    ] = "auto"
    parallel_tool_calls: bool = True
    text: TextConfig = Field(default_factory=TextConfig)
    reasoning: ReasoningConfig = Field(default_factory=ReasoningConfig)
    max_output_tokens: int | None = Field(default=None, ge=1, description="default: what the context leaves")
    stop: StopStrings = Field(default_factory=list, description="as in chat completions")
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    metadata: dict[Text, Text] = Field(default_factory=dict, max_length=MAX_METADATA, description="told in the answer")
    user: Text | None = None
    include: list[Literal["reasoning.encrypted_content", "message.output_text.logprobs"]] = Field(
        default_factory=list, max_length=8, description="encrypted_content is of no effect: reasoning is plain text"
    )
    top_logprobs: int = Field(
        default=0, ge=0, le=MAX_LOGPROBS, description="told with include message.output_text.logprobs"
    )
    prompt_cache_key: Text | None = Field(default=None, description="taken and not used: every prompt is cached")
    prompt_cache_retention: Text | None = Field(default=None, description="taken and not used")
    safety_identifier: Text | None = Field(default=None, description="taken and not used")
    max_tool_calls: int | None = Field(default=None, ge=1, description="of tools that a server runs, of which are none")

    store: Annotated[Any, only(False)] = False
    previous_response_id: Annotated[Any, only()] = None
    conversation: Annotated[Any, only()] = None
    background: Annotated[Any, only(False)] = False
    prompt: Annotated[Any, only()] = Field(default=None, description="a template that is kept elsewhere")
    truncation: Annotated[Any, only("disabled")] = "disabled"
    service_tier: Annotated[Any, only("auto", "default")] = "auto"
    context_management: Annotated[Any, only([])] = Field(default_factory=list)
    moderation: Annotated[Any, only()] = None

    @property
    def logprobs(self) -> bool:
        """Whether those of the text are told."""
        return "message.output_text.logprobs" in self.include

    @field_validator("metadata")
    @classmethod
    def _short(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if len(name) > 64 or len(text) > 512:
                raise ValueError("names have at most 64 characters, and values 512")
        return value
