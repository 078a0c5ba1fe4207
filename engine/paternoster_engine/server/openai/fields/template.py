"""What a request gives a chat template besides its messages, as vLLM has it."""

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.fields.body import (
    MAX_MESSAGES,
    Body,
    Text,
    most_entries,
    whole_characters,
)
from paternoster_engine.server.openai.fields.counts import count_free_values

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
    """As :func:`check_plain_json` of a body's field."""
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
"""As the Model Context Protocol has names of tools; OpenAI takes up to 64 of these, without the dot."""


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
        """Those of the chat template besides its messages; what is empty is left out."""
        tools = [tool.model_dump(exclude_unset=True) for tool in self.tools]
        lists = {"tools": tools, "documents": self.documents}
        given = {name: value for name, value in lists.items() if value}
        return self.chat_template_kwargs | given

    def reasoning_variables(self, template: str) -> dict[str, Any]:
        """Those of how much the model thinks, as ``template`` reads them: none of a body without such a field."""
        return {}
