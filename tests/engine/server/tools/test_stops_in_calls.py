"""A text or token that ends answers does not cut a call, in any API."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation.open_call import OpenCall
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
ARGUMENTS = {"city": "St. Gallen"}
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {json.dumps(ARGUMENTS)}}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
USER = {"messages": [{"role": "user", "content": "Weather?"}]}
FUNCTION = {"name": "weather", "parameters": SCHEMA}
NAMED = {"type": "function", "function": {"name": "weather"}}
IGNORED = "X-Paternoster-Ignored"


async def _post(tokenizer: Tokenizer, path: str, body: dict[str, Any]) -> Any:
    async with scripted_server(tokenizer.with_template(QWEN3))(CALL, **ROOM) as server:
        return await server.client.post(path, json=body)


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("field", ["stop", "stop_token_ids"])
async def test_chat(tokenizer: Tokenizer, choice: Any, field: str) -> None:
    (full_stop,) = tokenizer.encode(".")
    assert full_stop in tokenizer.encode(CALL)
    tools = [{"type": "function", "function": FUNCTION}]
    body = {**USER, "tools": tools, "tool_choice": choice, field: ["."] if field == "stop" else [full_stop]}
    answer = await _post(tokenizer, "/v1/chat/completions", body)
    (choice,) = answer.json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == ARGUMENTS
    assert answer.headers[IGNORED] == field


async def test_messages(tokenizer: Tokenizer) -> None:
    tools = [{"name": "weather", "input_schema": SCHEMA}]
    body = {**USER, "max_tokens": 200, "tools": tools, "tool_choice": {"type": "any"}, "stop_sequences": ["."]}
    answer = await _post(tokenizer, "/v1/messages", body)
    message = answer.json()
    assert [block["input"] for block in message["content"]] == [ARGUMENTS]
    assert (message["stop_reason"], message["stop_sequence"]) == ("tool_use", None)
    assert answer.headers[IGNORED] == "stop_sequences"


async def test_responses(tokenizer: Tokenizer) -> None:
    body = {"input": "Weather?", "tools": [{"type": "function", **FUNCTION}], "tool_choice": "required", "stop": ["."]}
    answer = await _post(tokenizer, "/v1/responses", body)
    (item,) = answer.json()["output"]
    assert (item["status"], json.loads(item["arguments"])) == ("completed", ARGUMENTS)
    assert answer.headers[IGNORED] == "stop"


async def test_where_no_call_is_required_stops_end_the_text(tokenizer: Tokenizer) -> None:
    body = {**USER, "stop": ["one three"]}
    async with scripted_server(tokenizer.with_template(QWEN3))("one two one three", **ROOM) as server:
        answer = await server.client.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "one two "
    assert IGNORED not in answer.headers


async def test_no_stop_text_is_looked_for_within_a_call_that_the_model_makes(tokenizer: Tokenizer) -> None:
    stop, text = ["."], f"First\n{CALL}\nSo be it. More."
    async with scripted_server(tokenizer.with_template(QWEN3))(text, **ROOM) as server:
        tools: list[Any] = [{"type": "function", "function": FUNCTION}]
        chat = await server.client.post("/v1/chat/completions", json={**USER, "tools": tools, "stop": stop})
        tools = [{"name": "weather", "input_schema": SCHEMA}]
        body = {**USER, "max_tokens": 200, "tools": tools, "stop_sequences": stop}
        messages = await server.client.post("/v1/messages", json=body)
        body = {"input": "Weather?", "tools": [{"type": "function", **FUNCTION}], "stop": stop}
        responses = await server.client.post("/v1/responses", json=body)
    (choice,) = chat.json()["choices"]
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == ARGUMENTS
    assert choice["message"]["content"].split() == ["First", "So", "be", "it"]
    first, use, second = messages.json()["content"]
    assert (first["text"].strip(), use["input"], second["text"].strip()) == ("First", ARGUMENTS, "So be it")
    assert messages.json()["stop_sequence"] == "."
    assert json.loads(responses.json()["output"][1]["arguments"]) == ARGUMENTS
    assert responses.json()["output"][2]["content"][0]["text"].strip() == "So be it"


async def test_a_stop_text_behind_the_arguments_ends_the_answer(tokenizer: Tokenizer) -> None:
    tools = [{"type": "function", "function": FUNCTION}]
    async with scripted_server(tokenizer.with_template(QWEN3))(f"{CALL}\n{CALL}", **ROOM) as server:
        body = {**USER, "tools": tools, "stop": ["</tool_call>"]}
        answer = await server.client.post("/v1/chat/completions", json=body)
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == ARGUMENTS


@given(value=st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_arguments_are_over_with_their_last_brace(value: Any) -> None:
    call = OpenCall()
    call.follow_events([Content("{"), CallBegin("f")])
    assert call.open
    for character in json.dumps({"a": value}, ensure_ascii=False):
        assert call.open
        call.follow_events([Arguments(character)])
    assert not call.open
