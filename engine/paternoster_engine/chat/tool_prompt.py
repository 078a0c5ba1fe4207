"""The built-in tool template: tools, calls and results as plain text, for chat templates without support for them.

The system message gets the tools and the form of a call; the assistant's calls become text of that form, and results
become messages of the user. The form is the one of Hermes and Qwen, ``<tool_call>{"name": ..., "arguments": ...}
</tool_call>``, which :mod:`paternoster_engine.server.parsers.calls.hermes` reads.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CALL_BEGIN, CALL_END = "<tool_call>", "</tool_call>"
RESULT_BEGIN, RESULT_END = "<tool_response>", "</tool_response>"
MARKS = CALL_BEGIN + CALL_END + RESULT_BEGIN + RESULT_END
"""Texts of the built-in template that are control tokens of some vocabularies."""
_SECTION = (
    "You can call these functions. Each line is a function in JSON, with a JSON schema of its parameters:\n"
    "<tools>\n%s\n</tools>\n"
    "To call a function, answer with its name and its arguments in JSON between these tags:\n"
    f'{CALL_BEGIN}\n{{"name": "function name", "arguments": {{"parameter": "value"}}}}\n{CALL_END}\n'
    f"The result of a call comes between {RESULT_BEGIN} and {RESULT_END}. Answer without a call where none is needed."
)
_FUNCTION_FIELDS = ("name", "description", "parameters")


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the conversation has calls or results."""
    return any(message["role"] == "tool" or message.get("tool_calls") for message in messages)


def write_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Write ``tools``, calls and results as text into ``messages``, whose contents are strings.

    Neighbouring results and a message of the user behind them become one message of role ``user``, since many templates
    refuse two of a role in a row.
    """
    written: list[dict[str, Any]] = []
    of_results = False
    for message in messages:
        if message["role"] == "tool":
            result = f"{RESULT_BEGIN}\n{message['content']}\n{RESULT_END}"
            if of_results:
                written[-1]["content"] += "\n" + result
            else:
                written.append({"role": "user", "content": result})
            of_results = True
        elif of_results and message["role"] == "user":
            written[-1]["content"] += "\n" + message["content"]
            of_results = False
        else:
            written.append(_without_calls(message))
            of_results = False
    return _with_section(written, tools) if tools else written


def _without_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    texts = [message["content"]] if message["content"] else []
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return rest | {"content": "\n".join([*texts, *_call_texts(message)])}


def _call_texts(message: Mapping[str, Any]) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = function.get("arguments_text") or _dump_json(function["arguments"])
        yield f'{CALL_BEGIN}\n{{"name": {_dump_json(function["name"])}, "arguments": {arguments}}}\n{CALL_END}'


def _with_section(messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    lines = [
        _dump_json({name: tool["function"][name] for name in _FUNCTION_FIELDS if name in tool["function"]})
        for tool in tools
    ]
    section = _SECTION % "\n".join(lines)
    if messages and messages[0]["role"] in ("system", "developer"):
        first = messages[0]
        return [first | {"content": f"{first['content']}\n\n{section}" if first["content"] else section}, *messages[1:]]
    return [{"role": "system", "content": section}, *messages]


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
