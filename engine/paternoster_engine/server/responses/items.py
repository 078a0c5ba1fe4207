"""Items of a conversation: what ``input`` may be in the body of ``POST /v1/responses``."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from paternoster_engine.server.openai.fields.body import MAX_MESSAGES, Body, Text, accept_hint, text_or_list
from paternoster_engine.server.openai.fields.template import JsonObject, plain_json
from paternoster_engine.server.responses.tools import Tools
from paternoster_engine.server.translation.fields import TypedBody

PartType = Literal["input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"]
ServedItem = Literal[
    "message", "agent_message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
    "custom_tool_call_output", "tool_search_call", "tool_search_output", "additional_tools", "local_shell_call",
    "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
    "mcp_call",
]  # fmt: skip
IgnoredItem = Literal[
    "web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call", "mcp_list_tools",
    "mcp_approval_request", "mcp_approval_response", "configuration_update",
]  # fmt: skip
"""What tools that a server runs left in a conversation: no text that the model wrote or read."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "message": ("role",),
    "agent_message": ("content",),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
    "tool_search_call": ("call_id", "arguments"),
    "tool_search_output": ("call_id", "tools"),
    "additional_tools": ("tools",),
    "local_shell_call": ("call_id", "action"),
    "local_shell_call_output": ("output",),
    "shell_call": ("call_id", "action"),
    "shell_call_output": ("call_id", "output"),
    "apply_patch_call": ("call_id", "operation"),
    "apply_patch_call_output": ("call_id",),
    "mcp_call": ("id", "name", "arguments"),
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
    def _check_needed_field(self) -> Self:
        field = "refusal" if self.type == "refusal" else "text"
        if field not in self.model_fields_set:
            raise ValueError(f"a part of type {self.type} needs {field}")
        return self

    @property
    def visible_text(self) -> str:
        return self.text or self.refusal


def _parts_of(type: PartType) -> BeforeValidator:
    """A text is one part of ``type``."""
    return text_or_list(InputPart, MAX_MESSAGES, lambda text: [{"type": type, "text": text}])


Parts = Annotated[list[InputPart], Field(max_length=MAX_MESSAGES)]


def _parse_output(value: Any) -> Any:
    """A text, a list of parts of text, or what the output of a shell or a patch is, as JSON."""
    if isinstance(value, dict):
        value = json.dumps(plain_json(value), ensure_ascii=False)
    if isinstance(value, list) and not all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in value
    ):
        value = json.dumps(plain_json(value), ensure_ascii=False)
    if isinstance(value, str):
        return [{"type": "input_text", "text": value}]
    if not isinstance(value, list):
        raise ValueError("must be a text, a list or an object")
    return value


class InputItem(TypedBody):
    """One item of a conversation: which fields it has depends on its type."""

    type: Literal[ServedItem, IgnoredItem] = "message"
    id: Text | None = Field(default=None, description="taken and not used: nothing is stored")
    status: Text | None = Field(default=None, description="taken and not used")
    phase: Text | None = Field(default=None, description="taken and not used")
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Annotated[Parts, _parts_of("input_text")] = Field(default_factory=list)
    author: Text | None = Field(default=None, description="of an agent's message")
    recipient: Text | None = Field(default=None, description="of an agent's message; not used")
    call_id: Text | None = None
    name: Text | None = None
    namespace: Text | None = Field(default=None, description="of the tool that is called")
    arguments: Text | JsonObject | None = Field(default=None, description="a text; of a tool_search_call an object")
    input: Text | None = Field(default=None, description="of a custom tool's call")
    action: JsonObject | None = Field(default=None, description="of a shell's call")
    operation: JsonObject | None = Field(default=None, description="of a patch")
    output: Annotated[
        Parts | None, BeforeValidator(_parse_output, json_schema_input_type=str | list[InputPart] | dict[str, Any])
    ] = None
    error: Text | JsonObject | None = Field(default=None, description="of a call that a server ran")
    server_label: Text | None = Field(default=None, description="taken and not used")
    tools: Tools | None = Field(default=None, description="that are offered from here on")
    execution: Annotated[Text | None, accept_hint(None, "client", "server")] = Field(
        default=None, description="client and server are taken and not used; others are ignored"
    )
    success: Any = Field(default=None, description="taken and not used")
    caller: Any = Field(default=None, description="taken and not used")
    max_output_length: Any = Field(default=None, description="taken and not used")
    summary: Parts = Field(default_factory=list, description="read where a reasoning item has no content")
    encrypted_content: Any = Field(default=None, description="taken and not used: answers have none")

    @classmethod
    def serves_type(cls, type: Any) -> bool:
        return type not in get_args(IgnoredItem)

    @model_validator(mode="after")
    def _check_needed_fields(self) -> Self:
        for field in NEEDED.get(self.type, ()):
            if getattr(self, field) is None:
                raise ValueError(f"an item of type {self.type} needs {field}")
        if isinstance(self.arguments, dict) != (self.type == "tool_search_call") and self.arguments is not None:
            raise ValueError("arguments: must be an object in a tool_search_call, and a text in other calls")
        return self
