"""Whether and which tools a model may call."""

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationInfo, field_validator

from paternoster_engine.server.openai.fields.body import Body
from paternoster_engine.server.openai.fields.template import FunctionName, TemplateFields
from paternoster_engine.server.parsers.call_form import RequiredCalls


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
