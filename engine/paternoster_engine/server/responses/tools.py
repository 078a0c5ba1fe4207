"""Tools that clients may offer, and what they may ask to be called: parts of the body of ``POST /v1/responses``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paternoster_engine.server.openai.fields.body import Body, Text, ignored_value, whole_characters
from paternoster_engine.server.openai.fields.template import MAX_SCHEMA, MAX_TOOLS, JsonObject
from paternoster_engine.server.translation.fields import TypedBody


class ToolFormat(Body):
    """What the text is that a custom tool is called with."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: Text | None = Field(default=None, max_length=MAX_SCHEMA)

    @model_validator(mode="after")
    def _check_needed_fields(self) -> Self:
        if self.type == "grammar" and (self.syntax is None or self.definition is None):
            raise ValueError("a format of type grammar needs syntax and definition")
        return self

    def _own_ignored(self, given: Mapping[str, Any]) -> Iterator[str]:
        yield from super()._own_ignored(given)
        if self.syntax == "lark":
            # The model reads the grammar, and is not held to it: a call has the text as JSON.
            yield ignored_value("syntax", self.syntax)


class ResponseTool(TypedBody):
    """A tool that the client runs, or one of a type that is ignored: those that a server would run."""

    type: Text
    name: Text | None = None
    description: Text | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None
    format: ToolFormat = Field(default_factory=lambda: ToolFormat(type="text"), description="of a custom tool's input")
    defer_loading: bool = Field(default=False, description="offered once a search by the client finds it")
    allowed_callers: Any = Field(default=None, description="taken and not used: the model alone calls")
    output_schema: Any = Field(default=None, description="taken and not used")
    execution: Literal["client", "server"] = Field(default="server", description="of a tool_search: who runs it")

    @classmethod
    def serves_type(cls, type: Any) -> bool:
        return type in ("function", "custom")

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.served and self.name is None:
            raise ValueError(f"a tool of type {self.type} needs name")
        return self


class ResponseToolOrNamespace(ResponseTool):
    """A tool, or a namespace of several."""

    tools: list[ResponseTool] = Field(default_factory=list, max_length=MAX_TOOLS, description="of a namespace")

    @classmethod
    def serves_type(cls, type: Any) -> bool:
        return type in ("function", "custom", "namespace", "tool_search")

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.served and self.name is None and self.type != "tool_search":
            raise ValueError(f"a tool of type {self.type} needs name")
        return self

    @property
    def searched_by_server(self) -> bool:
        return self.type == "tool_search" and self.execution == "server"

    def _own_ignored(self, given: Mapping[str, Any]) -> Iterator[str]:
        if self.searched_by_server:
            yield ignored_value("type", self.type)
        else:
            yield from super()._own_ignored(given)


Tools = Annotated[list[ResponseToolOrNamespace], Field(max_length=MAX_TOOLS)]


@dataclass(frozen=True, slots=True)
class ChosenTool:
    """A tool of the client's."""

    type: str
    name: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class AllowedTools:
    """Tools of which ``mode`` says whether one must be called; others may not."""

    mode: str
    tools: tuple[ChosenTool, ...]


Choice = str | ChosenTool | AllowedTools


def _parse_chosen_tool(value: Any) -> ChosenTool | None:
    if not isinstance(value, dict) or value.get("type") not in ("function", "custom"):
        return None
    name, namespace = value.get("name"), value.get("namespace")
    if not isinstance(name, str) or not isinstance(namespace, str | None):
        return None
    return ChosenTool(value["type"], whole_characters(name), namespace and whole_characters(namespace))


def read_choice(value: Any) -> Choice:
    if isinstance(value, str) and value in ("none", "auto", "required"):
        return value
    chosen = _parse_chosen_tool(value)
    if chosen is not None:
        return chosen
    if isinstance(value, dict) and value.get("type") == "allowed_tools" and value.get("mode") in ("auto", "required"):
        tools = value.get("tools")
        if isinstance(tools, list) and 1 <= len(tools) <= MAX_TOOLS:
            # Those of other types are not offered at all.
            return AllowedTools(
                value["mode"], tuple(chosen for tool in tools if (chosen := _parse_chosen_tool(tool)) is not None)
            )
    raise ValueError(
        'must be "none", "auto", "required", {"type": "function", "name": ...}, {"type": "custom", "name": ...} or '
        '{"type": "allowed_tools", "mode": "auto" or "required", "tools": [...]}'
    )


def choice_object(choice: Choice) -> Any:
    """The choice as an answer repeats it."""
    if isinstance(choice, ChosenTool):
        return _chosen_tool_object(choice)
    if isinstance(choice, AllowedTools):
        return {
            "type": "allowed_tools",
            "mode": choice.mode,
            "tools": [_chosen_tool_object(tool) for tool in choice.tools],
        }
    return choice


def _chosen_tool_object(tool: ChosenTool) -> dict[str, Any]:
    namespace = {} if tool.namespace is None else {"namespace": tool.namespace}
    return {"type": tool.type, "name": tool.name, **namespace}


def tool_object(tool: ResponseTool) -> dict[str, Any]:
    """An offered tool as an answer repeats it."""
    fields = tool.model_dump(exclude_unset=True, exclude_none=True, exclude={"tools"})
    if tool.type == "function":
        fields = {"strict": None, "parameters": None} | fields
    if isinstance(tool, ResponseToolOrNamespace) and tool.type == "namespace":
        # The client's types need a text.
        fields = (
            {"description": ""} | fields | {"tools": [tool_object(member) for member in tool.tools if member.served]}
        )
    return fields
