"""Tools of the Responses API as functions of a chat: custom ones, those of namespaces, a search by the client."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from paternoster_engine.server.responses.tools import ResponseTool, ResponseToolOrNamespace
from paternoster_engine.server.translation.tools import Kind, OfferedTool

INPUT = "input"
"""The one argument of a custom tool, which is its text."""
TOOL_SEARCH: Final = "tool_search"
SEARCH_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "what the tool is needed for"}},
    "required": ["query"],
}
"""Where a client says none."""
_SEPARATOR = "__"


def chat_name(name: str, namespace: str | None) -> str:
    """Name of a function: those of namespaces begin with its name, as tools of MCP servers do in other clients."""
    if not namespace:
        return name
    return namespace + ("" if namespace.endswith(_SEPARATOR) else _SEPARATOR) + name


def list_offered_tools(tools: Sequence[ResponseToolOrNamespace], place: str) -> Iterator[tuple[OfferedTool, bool]]:
    """The tools that can be served, and whether each waits for a search; ``place``: where the body has the list."""
    for index, tool in enumerate(tools):
        here = f"{place}.{index}"
        if tool.type == "namespace":
            for inner, member in enumerate(tool.tools):
                if member.served:
                    yield _offered_tool(member, f"{here}.tools.{inner}", tool.name), member.defer_loading
        elif tool.type == TOOL_SEARCH and not tool.searched_by_server:
            function = _function_definition(TOOL_SEARCH, tool.description, tool.parameters or SEARCH_PARAMETERS)
            yield OfferedTool(function, here, TOOL_SEARCH), False
        elif tool.served and tool.type != TOOL_SEARCH:
            yield _offered_tool(tool, here), tool.defer_loading


def _offered_tool(tool: ResponseTool, place: str, namespace: str | None = None) -> OfferedTool:
    name = tool.name or ""
    in_chat = chat_name(name, namespace)
    kind: Kind = "function"
    if tool.type == "custom":
        kind = "custom"
        function = _custom_function(in_chat, tool)
    else:
        function = _function_definition(in_chat, tool.description, tool.parameters, tool.strict)
    return OfferedTool(function, place, kind, name, namespace)


def _custom_function(name: str, tool: ResponseTool) -> dict[str, Any]:
    """A function of one text. A regular expression is enforced; a grammar of Lark's is shown to the model.

    Formats of calls write the text as JSON mostly, in which no grammar of the text itself can be followed.
    """
    text: dict[str, Any] = {"type": "string"}
    described = [tool.description] if tool.description else []
    form = tool.format
    if form.syntax == "regex":
        text["pattern"] = f"^(?:{form.definition})$"
    elif form.syntax == "lark":
        described.append(f"The {INPUT} must match this Lark grammar:\n{form.definition}")
    schema = {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}
    return _function_definition(name, "\n".join(described) or None, schema, form.syntax == "regex" or None)


def _function_definition(
    name: str, description: str | None, parameters: Mapping[str, Any] | None, strict: bool | None = None
) -> dict[str, Any]:
    given = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    return {field: value for field, value in given.items() if value is not None}
