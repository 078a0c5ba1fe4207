"""A conversation as clients send it, and as chat templates read it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from paternoster_engine.server.openai.fields.body import MAX_MESSAGES, Body, Text, allow_only, text_or_list
from paternoster_engine.server.openai.fields.counts import count_free_values
from paternoster_engine.server.openai.fields.template import (
    FunctionName,
    Json,
    JsonObject,
    check_plain_json,
    plain_json,
)
from paternoster_http.json_bounds import JsonTooLarge, bounded_json

MAX_CALLS = 128
"""Calls of one message."""
MAX_ID = 256
"""Characters of a call's id."""

OF_ASSISTANTS = ("refusal", "thinking")
"""Types of parts that only its messages have; the text is in the field of that name."""

INVALID_JSON = "INVALID_JSON"
"""Name of the only argument where a model wrote no JSON object, or one that was cut; Anthropic's advice."""


def join_texts(texts: Iterable[str]) -> str:
    """Parts of one message as one text, with a newline between, as vLLM and llama.cpp have it; empty ones left out."""
    return "\n".join(text for text in texts if text)


def arguments_object(text: str, count_values: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """What the arguments of a call say; none where the text is empty. ``count_values``: of :func:`check_plain_json`."""
    try:
        value = bounded_json(text.encode(), "the text") if text.strip() else {}
    except (ValueError, JsonTooLarge):
        value = None
    try:
        value = check_plain_json(value, count_values)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON: text}


def _as_text(value: Any) -> Any:
    return json.dumps(plain_json(value), ensure_ascii=False) if isinstance(value, dict) else value


class CalledFunction(Body):
    name: FunctionName
    arguments: Annotated[Text, BeforeValidator(_as_text, json_schema_input_type=str | dict[str, Any])] = Field(
        default="", description="as the model wrote them, or the object that they are; empty: without arguments"
    )
    parsed_arguments: JsonObject | None = Field(default=None, description="of OpenAI's client; not used")


class ToolCall(Body):
    """A call that the assistant has made."""

    id: Text = Field(min_length=1, max_length=MAX_ID)
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = Field(default=None, description="of a stream's pieces; not used")

    def for_template(self, id_for_template: Callable[[str], str]) -> dict[str, Any]:
        """Write the message for templates, with the arguments' text (:mod:`paternoster_engine.chat.arguments`)."""
        arguments = self.function.arguments
        read = arguments_object(arguments, count_free_values)
        function = {"name": self.function.name, "arguments": read, "arguments_text": arguments or "{}"}
        return {"id": id_for_template(self.id), "type": self.type, "function": function}


class ThoughtPart(Body):
    """A piece of what was thought, as Mistral's API has it."""

    type: Literal["text"]
    text: Text


class TextPart(Body):
    """A piece of text; images, sounds and files are refused by the names of their types."""

    type: Literal["text", "input_text", "output_text", "refusal", "thinking"]
    text: Text = ""
    refusal: Text = ""
    thinking: Text | list[ThoughtPart] = ""
    annotations: Any = Field(default=None, description="taken and not used, as in an answer that is sent back")

    @model_validator(mode="after")
    def _check_needed_field(self) -> Self:
        field = self.type if self.type in OF_ASSISTANTS else "text"
        if field not in self.model_fields_set:
            raise ValueError(f"a part of type {self.type} needs {field}")
        return self

    @property
    def visible_text(self) -> str:
        return self.text or self.refusal

    @property
    def thought(self) -> str:
        parts = self.thinking
        return parts if isinstance(parts, str) else join_texts(part.text for part in parts)


Content = Annotated[
    list[TextPart],
    text_or_list(TextPart, MAX_MESSAGES, lambda text: [{"type": "text", "text": text}]),
    Field(max_length=MAX_MESSAGES),
]


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = Field(default_factory=list, validate_default=True)
    name: Text | None = None
    refusal: Text = Field(default="", description="of the assistant's: a text as any other")
    annotations: Any = Field(default=None, description="taken and not used, as in an answer that is sent back")
    tool_call_id: Text | None = Field(
        default=None, max_length=MAX_ID, validate_default=True, description="of a tool's message: the call it answers"
    )
    tool_calls: list[ToolCall] = Field(default_factory=list, max_length=MAX_CALLS, description="of the assistant's")
    reasoning_content: Text | None = Field(default=None, description="of the assistant's: what it thought before")
    reasoning: Text | None = Field(default=None, description="other name of reasoning_content")
    parsed: Json = Field(default=None, description="of OpenAI's client; not used")
    audio: Annotated[Any, allow_only()] = None
    function_call: Annotated[Any, allow_only()] = None

    @field_validator("content")
    @classmethod
    def _need_content(cls, value: list[TextPart], info: ValidationInfo) -> list[TextPart]:
        role = info.data.get("role")
        # An assistant's may be missing: so are answers that ended at once; and tools may find nothing.
        if not value and role not in ("assistant", "tool"):
            raise ValueError("only a message of role assistant or tool can be without")
        for index, part in enumerate(value):
            if part.type in OF_ASSISTANTS and role not in ("assistant", None):
                raise ValueError(f"part {index}: only a message of role assistant has parts of type {part.type}")
        return value

    @field_validator("tool_call_id")
    @classmethod
    def _of_tools(cls, value: str | None, info: ValidationInfo) -> str | None:
        if (info.data.get("role") == "tool") != (value is not None):
            raise ValueError("a message of role tool needs one, and no other has one")
        return value

    @field_validator("tool_calls", "reasoning_content", "reasoning", "refusal")
    @classmethod
    def _of_assistants(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("role") not in ("assistant", None):
            raise ValueError("only a message of role assistant has any")
        return value

    @property
    def text(self) -> str:
        return join_texts([*(part.visible_text for part in self.content), self.refusal])

    def for_template(self, id_for_template: Callable[[str], str] = str) -> dict[str, Any]:
        """The message as chat templates read it; ``id_for_template``: ids of calls as the model's takes them."""
        message: dict[str, Any] = {"role": self.role, "content": self.text}
        if self.name is not None:
            message["name"] = self.name
        if self.tool_call_id is not None:
            message["tool_call_id"] = id_for_template(self.tool_call_id)
        if self.tool_calls:
            message["tool_calls"] = [call.for_template(id_for_template) for call in self.tool_calls]
        parts = join_texts(part.thought for part in self.content)
        thought = self.reasoning_content or self.reasoning or parts
        if thought:
            # Qwen3's name of it, that of newer templates, and gpt-oss's, which takes no content beside it.
            message |= {"reasoning_content": thought, "reasoning": thought}
            if not message["content"]:
                message["thinking"] = thought
        return message


def _tools_answer(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Raises ``ValueError`` for a tool's message that answers no call."""
    called: set[str] | None = None
    for message in messages:
        if message.role == "assistant":
            called = {call.id for call in message.tool_calls}
        elif message.role != "tool":
            called = None
        elif called is None:
            raise ValueError(
                f"the result of the call {message.tool_call_id!r} must come after the message that calls the tool"
            )
        elif called and message.tool_call_id not in called:
            raise ValueError(
                f"the result of the call {message.tool_call_id!r} is of no call of the assistant's message before: "
                f"these are {', '.join(sorted(map(repr, called))[:8])}"
            )
    return messages


Messages = Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES), AfterValidator(_tools_answer)]


def template_order(messages: Sequence[ChatMessage]) -> list[int]:
    """Indices of ``messages`` as templates get them: results of tools in the order of the calls."""
    order: list[int] = []
    results: list[int] = []
    places: dict[str, int] = {}

    def order_results() -> list[int]:
        return sorted(results, key=lambda index: places.get(messages[index].tool_call_id or "", 0))

    for index, message in enumerate(messages):
        if message.role == "tool":
            results.append(index)
            continue
        order += [*order_results(), index]
        results.clear()
        places = {call.id: place for place, call in enumerate(message.tool_calls)}
    return order + order_results()


def for_template(messages: Sequence[ChatMessage], id_for_template: Callable[[str], str] = str) -> list[dict[str, Any]]:
    """The conversation as chat templates read it.

    Answers of tools come in the order of the calls, because most templates show no ids, and have the function's name.
    """
    conversation: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for index in template_order(messages):
        message = messages[index]
        if message.role != "tool":
            names = {call.id: call.function.name for call in message.tool_calls}
        name = names.get(message.tool_call_id or "")
        conversation.append(({} if name is None else {"name": name}) | message.for_template(id_for_template))
    return conversation


def texts_of(value: Any) -> Iterator[str]:
    """All texts in what templates read of a conversation, whose sizes are what it costs."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            if name != "arguments":
                yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
