"""What clients may ask for: ``POST /v1/responses``.

Fields that only mean something where answers are kept are refused by name, but for ``store`` itself. Tools that a
server runs itself are ignored, with what they wrote into earlier turns.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, model_validator

from paternoster_engine.server.openai.fields.body import (
    MAX_LOGPROBS,
    MAX_MESSAGES,
    Body,
    Metadata,
    StopStrings,
    Text,
    accept_hint,
    allow_only,
    ignored_value,
    text_or_list,
)
from paternoster_engine.server.openai.fields.template import JsonObject
from paternoster_engine.server.responses.items import InputItem
from paternoster_engine.server.responses.tools import Choice, Tools, read_choice
from paternoster_engine.server.translation.fields import PassedFields

MAX_EDITS = 16
"""Edits of ``context_management``."""
SUMMARIES = (None, "auto", "concise", "detailed")
"""Values of ``reasoning.summary`` that ask for no more than the answer has."""
LOGPROBS = "message.output_text.logprobs"
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")
"""Values of ``include`` that are served; the others are parts of what the server's own tools write."""


class ResponseTextFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    name: Text | None = None
    description: Text | None = None
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _check_needed_fields(self) -> Self:
        if self.type == "json_schema" and (self.name is None or self.schema_ is None):
            raise ValueError("a format of type json_schema needs name and schema")
        return self


class TextConfig(Body):
    format: ResponseTextFormat | None = None
    verbosity: Annotated[Text | None, accept_hint(None, "low", "medium", "high")] = Field(
        default=None, description="low, medium and high are of no effect; others are ignored"
    )


class ReasoningConfig(Body):
    effort: Text | None = None
    summary: Annotated[Text | None, accept_hint(*SUMMARIES)] = Field(
        default=None,
        description="auto, concise and detailed are of no effect: the answer has the reasoning itself; others are "
        "ignored",
    )
    generate_summary: Annotated[Text | None, accept_hint(*SUMMARIES)] = Field(
        default=None, description="older name of summary"
    )


class ResponseStreamOptions(Body):
    include_obfuscation: Annotated[bool, accept_hint(False)] = Field(default=False, description="true is ignored")


class ResponsesRequest(PassedFields):
    """Body of ``POST /v1/responses``."""

    model: Text | None = Field(default=None, description="served model (default: the one there is)")
    input: Annotated[
        list[InputItem],
        text_or_list(InputItem, MAX_MESSAGES, lambda text: [{"role": "user", "content": text}]),
        Field(min_length=1, max_length=MAX_MESSAGES),
    ]
    instructions: Text | None = None
    tools: Tools = Field(default_factory=list)
    tool_choice: Annotated[Choice, PlainValidator(read_choice, json_schema_input_type=str | dict[str, Any])] = "auto"
    parallel_tool_calls: bool = True
    text: TextConfig = Field(default_factory=TextConfig)
    reasoning: ReasoningConfig = Field(default_factory=ReasoningConfig)
    max_output_tokens: int | None = Field(default=None, ge=1, description="default: what the context leaves")
    stop: StopStrings = Field(default_factory=list, description="as in chat completions")
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    metadata: Metadata = Field(default_factory=dict, description="returned in the answer")
    user: Text | None = None
    include: list[Text] = Field(
        default_factory=list,
        max_length=16,
        description=f"{LOGPROBS}; reasoning.encrypted_content is of no effect: reasoning is plain text; others are "
        "ignored",
    )
    top_logprobs: int = Field(
        default=0, ge=0, le=MAX_LOGPROBS, description="in the answer with include message.output_text.logprobs"
    )
    prompt_cache_key: Text | None = Field(default=None, description="taken and not used: every prompt is cached")
    prompt_cache_retention: Text | None = Field(default=None, description="taken and not used")
    safety_identifier: Text | None = Field(default=None, description="taken and not used")
    max_tool_calls: int | None = Field(default=None, ge=1, description="of tools that a server runs, of which are none")

    store: Annotated[bool, accept_hint(False)] = Field(default=False, description="nothing is stored: true is ignored")
    previous_response_id: Annotated[Any, allow_only()] = None
    conversation: Annotated[Any, allow_only()] = None
    background: Annotated[Any, allow_only(False)] = False
    prompt: Annotated[Any, allow_only()] = Field(default=None, description="a template that is kept elsewhere")
    truncation: Annotated[Text, accept_hint("disabled")] = Field(
        default="disabled", description="what does not fit is refused: others, such as auto, are ignored"
    )
    service_tier: Annotated[Text, accept_hint("auto", "default")] = Field(
        default="auto", description="others are ignored"
    )
    context_management: Annotated[list[JsonObject], accept_hint([])] = Field(
        default_factory=list, max_length=MAX_EDITS, description="nothing is compacted: ignored"
    )
    moderation: Annotated[Any, allow_only()] = None

    @property
    def logprobs(self) -> bool:
        """Whether the answer has those of the text."""
        return LOGPROBS in self.include

    def _own_ignored(self, given: Mapping[str, Any]) -> Iterator[str]:
        yield from super()._own_ignored(given)
        yield from (ignored_value("include", item) for item in self.include if item not in INCLUDED)
