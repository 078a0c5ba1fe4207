"""Fields of a request for its chat template besides the messages, as vLLM has them, and tools that must be called."""

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, field_validator

from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.fields.body import (
    MAX_MESSAGES,
    Body,
    Text,
    most_entries,
    report_ignored,
    whole_characters,
)
from paternoster_engine.server.openai.fields.counts import count_free_values
from paternoster_engine.server.parsers.call_form import RequiredCalls

MAX_DEPTH = 32
"""Lists and objects in one another."""
MAX_VARIABLES = 64
MAX_TOOLS = 128
"""OpenAI's limit."""
MAX_SCHEMA = 64 * 2**10
"""Bytes of what describes a function's parameters, as JSON."""
RESERVED = (
    "messages", "tools", "documents", "add_generation_prompt", "chat_template", "tokenize",
    "bos_token", "eos_token", "unk_token", "pad_token",
)  # fmt: skip
"""Variables of a template that have a field of their own or come from the model."""


def plain_json(value: Any) -> Any:
    """Check a body's field as :func:`check_plain_json` does."""
    return check_plain_json(value, count_free_values)


def check_plain_json(value: Any, count_values: Callable[[int], None]) -> Any:
    """Return ``value``. ``count_values`` is called with the numbers of values and names before they are looked at.

    Raises ``ValueError`` for what JSON cannot express: lone surrogates, NaN, infinities; and for deep nesting.
    """
    left = [(value, 0)]
    while left:
        item, depth = left.pop()
        if isinstance(item, str):
            whole_characters(item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"has the number {item}: must be finite")
        elif isinstance(item, (list, dict)):
            if depth == MAX_DEPTH:
                raise ValueError(f"is nested deeper than {MAX_DEPTH} lists and objects")
            count_values(len(item) if isinstance(item, list) else 2 * len(item))
            left += [(part, depth + 1) for part in (item if isinstance(item, list) else [*item, *item.values()])]
    return value


def _not_reserved(variables: dict[str, Any]) -> dict[str, Any]:
    for name in variables:
        if name in RESERVED:
            raise ValueError(f"has {name!r}: no names are {', '.join(RESERVED)}")
    return variables


Json = Annotated[Any, AfterValidator(plain_json)]
JsonObject = Annotated[dict[str, Any], AfterValidator(plain_json)]


def _check_schema_size(schema: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(schema, ensure_ascii=False).encode())
    if size > MAX_SCHEMA:
        raise ValueError(f"has {size} bytes as JSON: at most {MAX_SCHEMA}")
    return schema


FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]
"""Name of a function as the Model Context Protocol has it; OpenAI takes up to 64 of these, without the dot."""


class Function(Body):
    """A function as the template shows it to the model."""

    name: FunctionName
    description: Text | None = None
    parameters: Annotated[JsonObject, AfterValidator(_check_schema_size)] | None = Field(
        default=None, description="a JSON schema; enforced where strict is true or a call is required"
    )
    strict: bool | None = Field(default=None, description="true: arguments of each call are held to parameters")


class Tool(Body):
    type: Literal["function"]
    function: Function


class TemplateFields(Body):
    """Fields of chats, and of ``/tokenize`` for messages."""

    tools: list[Tool] = Field(
        default_factory=list,
        max_length=MAX_TOOLS,
        description="functions that the template shows the model",
    )
    documents: list[JsonObject] = Field(
        default_factory=list, max_length=MAX_MESSAGES, description="documents that the template shows the model"
    )
    chat_template_kwargs: Annotated[JsonObject, AfterValidator(_not_reserved), most_entries(MAX_VARIABLES)] = Field(
        default_factory=dict,
        max_length=MAX_VARIABLES,
        description="variables of the template, such as enable_thinking",
    )
    add_generation_prompt: bool = Field(default=True, description="let the template begin the answer")
    continue_final_message: bool = Field(
        default=False,
        description="let the answer go on with the last message, the assistant's; in place of add_generation_prompt",
    )

    @property
    def begins_answer(self) -> bool:
        """Whether the template does; raises :class:`InvalidValue` where the last message is to, too."""
        if (
            self.continue_final_message
            and self.add_generation_prompt
            and "add_generation_prompt" in self.model_fields_set
        ):
            raise InvalidValue(
                "continue_final_message", "continue_final_message: not allowed with add_generation_prompt=true"
            )
        return self.add_generation_prompt and not self.continue_final_message

    def template_variables(self) -> dict[str, Any]:
        """Variables of the chat template besides its messages; what is empty is left out."""
        tools = [tool.model_dump(exclude_unset=True) for tool in self.tools]
        lists = {"tools": tools, "documents": self.documents}
        given = {name: value for name, value in lists.items() if value}
        return self.chat_template_kwargs | given

    def reasoning_variables(self, template: str) -> dict[str, Any]:
        """Variables of how much the model thinks, as ``template`` reads them: none of a body without such a field."""
        return {}


class ChosenFunction(Body):
    name: FunctionName


class NamedTool(Body):
    """The one tool that must be called."""

    type: Literal["function"]
    function: ChosenFunction


def _parse_tool_choice(value: Any) -> str | NamedTool:
    if isinstance(value, dict):
        return NamedTool.model_validate(value)
    if isinstance(value, str) and value in ("none", "auto", "required"):
        return value
    raise ValueError('must be "none", "auto", "required" or {"type": "function", "function": {"name": ...}}')


class ToolFields(TemplateFields):
    """Whether and which tools a model may call."""

    tool_choice: Annotated[
        str | NamedTool,
        PlainValidator(_parse_tool_choice, json_schema_input_type=Literal["none", "auto", "required"] | NamedTool),
    ] = Field(
        default="auto",
        description="none: the prompt has no tools; required, or a function: answers are held to calls",
    )
    parallel_tool_calls: bool = Field(default=True, description="false: the answer has the first call alone")

    @field_validator("tool_choice")
    @classmethod
    def _need_tools(cls, value: str | NamedTool, info: ValidationInfo) -> str | NamedTool:
        tools = info.data.get("tools")
        if value in ("none", "auto") or tools is None:
            return value
        if not tools:
            raise ValueError("there are no tools: give some")
        if isinstance(value, NamedTool):
            name = value.function.name
            if name not in [tool.function.name for tool in tools]:
                raise ValueError(f"there is no tool {name!r} in tools")
        return value

    _hidden: frozenset[str] = frozenset()

    def hide_tools(self, names: frozenset[str]) -> None:
        """Tools that may be called, and that the template is not given: the conversation shows them itself."""
        self._hidden = names

    @property
    def callable_tools(self) -> dict[str, dict[str, Any]]:
        """Functions that may be called, and the schemas of their arguments."""
        if self.tool_choice == "none":
            return {}
        return {tool.function.name: tool.function.parameters or {} for tool in self.tools}

    @property
    def required_calls(self) -> RequiredCalls | None:
        """What must be called, None where nothing must."""
        if self.tool_choice in ("none", "auto"):
            return None
        named = self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None
        tools = [(name, schema) for name, schema in self.callable_tools.items() if named in (None, name)]
        return RequiredCalls(tools, several=named is None and self.parallel_tool_calls)

    @property
    def possible_calls(self) -> RequiredCalls | None:
        """What may be called, None where nothing may. Arguments of tools that are not strict are any object."""
        if self.tool_choice != "auto" or not self.tools:
            return None
        tools = {
            tool.function.name: (tool.function.parameters or {}) if tool.function.strict else {} for tool in self.tools
        }
        return RequiredCalls(list(tools.items()), several=self.parallel_tool_calls)

    @property
    def strict(self) -> bool:
        """Whether arguments of some tool must be of its schema."""
        return any(tool.function.strict for tool in self.tools)

    def template_variables(self) -> dict[str, Any]:
        variables = super().template_variables()
        if self.tool_choice == "none":
            variables.pop("tools", None)
        elif self._hidden:
            variables["tools"] = [tool for tool in variables["tools"] if tool["function"]["name"] not in self._hidden]
        return variables


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ReasoningFields(Body):
    """How much a model thinks before it answers, and whether answers show that."""

    include_reasoning: bool = Field(
        default=True, description="false: the answer has no reasoning, though its tokens count"
    )
    reasoning_effort: Effort | None = Field(
        default=None,
        description="for templates that read it, or enable_thinking, which none makes false; ignored by others",
    )

    def reasoning_variables(self, template: str) -> dict[str, Any]:
        """Variables of the chat template. A hint that the template does not read is reported as ignored."""
        effort = self.reasoning_effort
        if effort is None:
            return {}
        if "reasoning_effort" in template:
            return {"reasoning_effort": effort}
        if "enable_thinking" in template:
            return {"enable_thinking": effort != "none"}
        if effort != "none":
            report_ignored("reasoning_effort")
        return {}
