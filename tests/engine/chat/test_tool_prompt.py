"""The built-in tool template: tools, calls and results as text of a conversation."""

from typing import Any

import pytest

from paternoster_engine.chat.tool_prompt import write_tools

TOOL = {
    "type": "function",
    "function": {"name": "get", "description": "é", "parameters": {"type": "object"}, "strict": True},
}
LINE = '{"name": "get", "description": "é", "parameters": {"type": "object"}}'


def _call(name: str, **function: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, **function}}


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": "1"}


@pytest.mark.parametrize("role", ["system", "developer"])
def test_tools_come_behind_the_instructions(role: str) -> None:
    system, user = write_tools([{"role": role, "content": "Be brief."}, _user("Hi")], [TOOL])
    assert (system["role"], user) == (role, _user("Hi"))
    assert system["content"].startswith("Be brief.\n\n")
    assert f"<tools>\n{LINE}\n</tools>" in system["content"]


def test_tools_without_instructions_are_a_system_message() -> None:
    system, user = write_tools([_user("Hi")], [TOOL, TOOL])
    assert (system["role"], user) == ("system", _user("Hi"))
    assert system["content"].count(LINE + "\n") == 2


def test_without_tools_the_system_message_stays() -> None:
    messages = [{"role": "system", "content": "s"}, _user("Hi"), {"role": "assistant", "content": "a", "name": "n"}]
    assert write_tools(messages, None) == messages


def test_calls_stand_behind_the_text_with_the_arguments_that_the_model_wrote() -> None:
    calls = [_call("get", arguments={"a": 1}, arguments_text='{"a":  1}'), _call("s", arguments={"é": None})]
    with_text = {"role": "assistant", "content": "I look.", "tool_calls": calls, "reasoning_content": "r"}
    alone = {"role": "assistant", "content": "", "tool_calls": calls[1:]}
    text = '<tool_call>\n{"name": "s", "arguments": {"é": null}}\n</tool_call>'
    first = 'I look.\n<tool_call>\n{"name": "get", "arguments": {"a":  1}}\n</tool_call>\n'
    assert write_tools([with_text, alone], None) == [
        {"role": "assistant", "content": first + text, "reasoning_content": "r"},
        {"role": "assistant", "content": text},
    ]


def test_results_and_the_next_message_of_the_user_are_one_message() -> None:
    first, second = "<tool_response>\n1\n</tool_response>", "<tool_response>\n2\n</tool_response>"
    messages = [_tool("1"), _tool("2"), _user("And?"), _user("?"), _tool("1"), {"role": "assistant", "content": "a"}]
    assert [message["content"] for message in write_tools(messages, None)] == [
        f"{first}\n{second}\nAnd?", "?", first, "a",
    ]  # fmt: skip
