"""Tools that Anthropic defines and the client runs, with the client's own types: functions of known inputs."""

import json
from typing import Any

import anthropic
import pytest
from anthropic.types import beta
from jsonschema_rs import validator_for
from pydantic import TypeAdapter
from tests.engine.server.messages.messages_server import MESSAGE_FIELDS, serving

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.messages.client_tools import CLIENT_TOOLS

TOOLS: list[Any] = [
    beta.BetaToolBash20241022Param(type="bash_20241022", name="bash"),
    beta.BetaToolBash20250124Param(type="bash_20250124", name="bash"),
    beta.BetaToolTextEditor20241022Param(type="text_editor_20241022", name="str_replace_editor"),
    beta.BetaToolTextEditor20250124Param(type="text_editor_20250124", name="str_replace_editor"),
    beta.BetaToolTextEditor20250429Param(type="text_editor_20250429", name="str_replace_based_edit_tool"),
    beta.BetaToolTextEditor20250728Param(
        type="text_editor_20250728", name="str_replace_based_edit_tool", max_characters=9000
    ),
    beta.BetaMemoryTool20250818Param(type="memory_20250818", name="memory"),
]
COMMANDS = TypeAdapter(beta.BetaMemoryTool20250818Command)
NOTES: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories", "view_range": [1, 5]},
    {"command": "create", "path": "/memories/a", "file_text": "x"},
    {"command": "str_replace", "path": "/memories/a", "old_str": "x", "new_str": "y"},
    {"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "z"},
    {"command": "delete", "path": "/memories/a"},
    {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"},
]
INPUTS: dict[str, dict[str, Any]] = {
    "bash": {"command": "ls"},
    "str_replace_editor": {"command": "undo_edit", "path": "/a"},
    "str_replace_based_edit_tool": {"command": "insert", "path": "/a", "insert_line": 0, "new_str": "x"},
    "memory": NOTES[3],
}


def test_every_tool_without_pictures_that_the_clients_types_know() -> None:
    """The client's next version may have more: serve them, or say here that they are not."""
    tool_types = {name for name in dir(beta) if name.endswith("Param") and name.startswith("BetaTool")}
    dated = {name for name in tool_types if any(kind in name for kind in ("Bash20", "TextEditor20"))}
    assert len(dated) == len([each for each in CLIENT_TOOLS if not each.startswith("memory")])
    assert {tool["type"] for tool in TOOLS} == set(CLIENT_TOOLS)
    assert all(CLIENT_TOOLS[tool["type"]].name == tool["name"] for tool in TOOLS)


@pytest.mark.parametrize("note", NOTES)
def test_inputs_of_memory_are_those_of_the_clients_types(note: dict[str, Any]) -> None:
    assert COMMANDS.validate_python(note).command == note["command"]
    schema = CLIENT_TOOLS["memory_20250818"].input_schema
    assert validator_for(schema).is_valid(note)
    assert {name for note in NOTES for name in note} == set(schema["properties"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tool", TOOLS, ids=[tool["type"] for tool in TOOLS])
async def test_they_are_offered_and_called(tokenizer: Tokenizer, tool: Any, stream: bool) -> None:
    name = tool["name"]
    call_text = f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(INPUTS[name])}}}\n</tool_call>'
    async with serving(tokenizer, call_text) as (server, client):
        raw: anthropic.AsyncAnthropic = client
        if stream:
            async with raw.beta.messages.stream(**MESSAGE_FIELDS, tools=[tool], tool_choice={"type": "any"}) as answers:
                message = await answers.get_final_message()
        else:
            message = await raw.beta.messages.create(**MESSAGE_FIELDS, tools=[tool], tool_choice={"type": "any"})
        (use,) = message.content
        assert use.type == "tool_use"
        assert (use.name, use.input, message.stop_reason) == (name, INPUTS[name], "tool_use")
        result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "done"}
        turns = [
            *MESSAGE_FIELDS["messages"],
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
        later = await raw.beta.messages.with_raw_response.create(**MESSAGE_FIELDS | {"messages": turns}, tools=[tool])
        assert "x-paternoster-ignored" not in later.headers
        function = CLIENT_TOOLS[tool["type"]]
        chat = {"messages": MESSAGE_FIELDS["messages"], "tools": [{"type": "function", "function": {
            "name": name, "description": function.description, "parameters": function.input_schema,
        }}]}  # fmt: skip
        prompt = (await server.client.post("/tokenize", json=chat)).json()["count"]
        counted = await raw.beta.messages.count_tokens(
            model="scripted", messages=MESSAGE_FIELDS["messages"], tools=[tool]
        )
        assert counted.input_tokens == prompt


async def test_tools_with_pictures_and_of_servers_stay_ignored(tokenizer: Tokenizer) -> None:
    tools: list[Any] = [
        {"type": "computer_20251124", "name": "computer", "display_width_px": 1, "display_height_px": 1},
        {"type": "bash_20990101", "name": "bash"},
    ]
    async with serving(tokenizer, "hello") as (server, _):
        answer = await server.client.post("/v1/messages", json=MESSAGE_FIELDS | {"tools": tools})
        assert answer.status_code == 200
        ignored = answer.headers["x-paternoster-ignored"]
        assert ignored == "tools[].type=bash_20990101, tools[].type=computer_20251124"
