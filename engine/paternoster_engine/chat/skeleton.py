"""The skeleton of a conversation: the conversation with a marker in place of each text.

The rendered skeleton shows which texts of all conversations of that shape reach the prompt.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_MARKER = re.compile(r"qz\d+[a-z]\d*zq")
CONTENT, CALLS, NAME, REASONING, DOCUMENT, TOOL = (
    "content",
    "tool_calls",
    "name",
    "reasoning_content",
    "documents",
    "tools",
)
_LETTERS = {CONTENT: "c", CALLS: "f", NAME: "n", REASONING: "r", DOCUMENT: "d", TOOL: "t"}
_KEY, _VALUE = "k", "v"
OPTIONAL = (NAME, REASONING, TOOL)
"""Fields that a template may leave out: many show no names, and no reasoning of earlier turns."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")


class Skeleton(NamedTuple):
    """A conversation of markers."""

    messages: list[dict[str, Any]]
    variables: dict[str, Any]
    places: dict[str, tuple[str, int]]
    """Marker -> the field that it stands for, and the index of its message or document."""

    @property
    def required(self) -> list[str]:
        """Markers that the prompt must contain, so that no text is lost."""
        return [marker for marker, (field, _) in self.places.items() if field not in OPTIONAL]


def skeleton_of(messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> Skeleton:
    """Replace each text by a marker, but for white space.

    ``messages``: as templates read them, with strings as content.
    """
    places: dict[str, tuple[str, int]] = {}
    ids: dict[str, str] = {}
    made = [_skeleton_message(index, message, places, ids) for index, message in enumerate(messages)]
    given = dict(variables)
    if variables.get(TOOL):
        given[TOOL] = [_skeleton_tool(places)]
    if variables.get(DOCUMENT):
        given[DOCUMENT] = [_skeleton_document(index, each, places) for index, each in enumerate(variables[DOCUMENT])]
    return Skeleton(made, given, places)


def markers_in(text: str) -> frozenset[str]:
    """Find all markers in ``text``."""
    return frozenset(_MARKER.findall(text))


def lost_documents(lost: Iterable[str], skeleton: Skeleton) -> list[int]:
    """Return the indices of the documents of which the prompt shows no text at all."""
    missing = {index: True for field, index in skeleton.places.values() if field == DOCUMENT}
    gone = set(lost)
    for marker, (field, index) in skeleton.places.items():
        if field == DOCUMENT and marker not in gone:
            missing[index] = False
    return [index for index, nothing in missing.items() if nothing]


def _skeleton_message(
    index: int, message: Mapping[str, Any], places: dict[str, tuple[str, int]], ids: dict[str, str]
) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message["role"]}
    for field, value in message.items():
        if field == CONTENT:
            made[field] = _text_marker(index, CONTENT, value, places)
        elif field in _THOUGHTS:
            made[field] = _text_marker(index, REASONING, value, places)
        elif field == NAME and message["role"] == "tool":
            # The name is that of the call, which has the marker.
            made[field] = f"qz{index}m0zq"
        elif field == NAME:
            made[field] = _text_marker(index, NAME, value, places)
        elif field == "tool_call_id":
            made[field] = _replace_id(value, ids)
        elif field == CALLS:
            made[field] = [_skeleton_call(index, place, call, places, ids) for place, call in enumerate(value)]
    return made


def _text_marker(index: int, field: str, value: str, places: dict[str, tuple[str, int]]) -> str:
    if not value.strip():
        return " " if value else ""
    marker = f"qz{index}{_LETTERS[field]}0zq"
    places[marker] = (field, index)
    return marker


def _replace_id(value: str, ids: dict[str, str]) -> str:
    """Replace an id by another of the same length, which some templates check."""
    return ids.setdefault(value, f"q{len(ids)}".ljust(len(value), "z"))


def _skeleton_call(
    index: int, place: int, call: Mapping[str, Any], places: dict[str, tuple[str, int]], ids: dict[str, str]
) -> dict[str, Any]:
    name = f"qz{index}{_LETTERS[CALLS]}{place}zq"
    places[name] = (CALLS, index)
    arguments, text = {}, "{}"
    if call["function"].get("arguments"):
        key, value = f"qz{index}{_KEY}{place}zq", f"qz{index}{_VALUE}{place}zq"
        places[value] = (CALLS, index)
        arguments, text = {key: value}, f'{{"{key}": "{value}"}}'
    function = {"name": name, "arguments": arguments, "arguments_text": text}
    return {"id": _replace_id(call["id"], ids), "type": "function", "function": function}


def _skeleton_tool(places: dict[str, tuple[str, int]]) -> dict[str, Any]:
    name = f"qz0{_LETTERS[TOOL]}0zq"
    places[name] = (TOOL, 0)
    parameters = {"type": "object", "properties": {"a": {"type": "string", "description": "b"}}, "required": ["a"]}
    return {"type": "function", "function": {"name": name, "description": "c", "parameters": parameters}}


def _skeleton_document(index: int, document: Any, places: dict[str, tuple[str, int]]) -> Any:
    count = 0

    def mark_value(value: Any) -> Any:
        nonlocal count
        if isinstance(value, dict):
            return {name: mark_value(item) for name, item in value.items()}
        if isinstance(value, list):
            return [mark_value(item) for item in value]
        if not isinstance(value, str) or not value.strip():
            return value
        marker = f"qz{index}{_LETTERS[DOCUMENT]}{count}zq"
        count += 1
        places[marker] = (DOCUMENT, index)
        return marker

    return mark_value(document)
