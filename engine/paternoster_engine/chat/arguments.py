"""Arguments of calls for templates that want an object, and for those that want its text."""

from collections.abc import Mapping
from typing import Any


class _CallArguments(dict[str, Any]):
    """Arguments of a call: a dict for templates that write JSON or iterate, and a text for those that concatenate."""

    def __init__(self, value: Mapping[str, Any], text: str) -> None:
        super().__init__(value)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text


def with_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge ``arguments`` and ``arguments_text`` of each call of ``message`` into one value."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = dict(call["function"])
        if "arguments_text" in function:
            function["arguments"] = _CallArguments(function["arguments"], function.pop("arguments_text"))
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls} if calls else message
