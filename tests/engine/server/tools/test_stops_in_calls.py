"""A text or token that ends answers does not cut a call that is required, in any API."""

import json
from typing import Any

import pytest
from scripted_server import scripted_server
from tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
ARGUMENTS = {"city": "St. Gallen"}
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {json.dumps(ARGUMENTS)}}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
USER = {"messages": [{"role": "user", "content": "Weather?"}]}
FUNCTION = {"name": "weather", "parameters": SCHEMA}
NAMED = {"type": "function", "function": {"name": "weather"}}
IGNORED = "X-Paternoster-Ignored"


async def _ask(tokenizer: Tokenizer, path: str, body: dict[str, Any]) -> Any:
    async with scripted_server(tokenizer.with_template(QWEN3))(CALL, **ROOM) as server:
        return await server.client.post(path, json=body)


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("field", ["stop", "stop_token_ids"])
async def test_chat(tokenizer: Tokenizer, choice: Any, field: str) -> None:
    (full_stop,) = tokenizer.encode(".")
    assert full_stop in tokenizer.encode(CALL)
    tools = [{"type": "function", "function": FUNCTION}]
    body = {**USER, "tools": tools, "tool_choice": choice, field: ["."] if field == "stop" else [full_stop]}
    answer = await _ask(tokenizer, "/v1/chat/completions", body)
    (choice,) = answer.json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == ARGUMENTS
    assert answer.headers[IGNORED] == field


async def test_messages(tokenizer: Tokenizer) -> None:
    tools = [{"name": "weather", "input_schema": SCHEMA}]
    body = {**USER, "max_tokens": 200, "tools": tools, "tool_choice": {"type": "any"}, "stop_sequences": ["."]}
    answer = await _ask(tokenizer, "/v1/messages", body)
    message = answer.json()
    assert [block["input"] for block in message["content"]] == [ARGUMENTS]
    assert (message["stop_reason"], message["stop_sequence"]) == ("tool_use", None)
    assert answer.headers[IGNORED] == "stop_sequences"


async def test_responses(tokenizer: Tokenizer) -> None:
    body = {"input": "Weather?", "tools": [{"type": "function", **FUNCTION}], "tool_choice": "required", "stop": ["."]}
    answer = await _ask(tokenizer, "/v1/responses", body)
    (item,) = answer.json()["output"]
    assert (item["status"], json.loads(item["arguments"])) == ("completed", ARGUMENTS)
    assert answer.headers[IGNORED] == "stop"


async def test_where_no_call_is_required_stops_end_the_text(tokenizer: Tokenizer) -> None:
    body = {**USER, "stop": ["one three"]}
    async with scripted_server(tokenizer.with_template(QWEN3))("one two one three", **ROOM) as server:
        answer = await server.client.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "one two "
    assert IGNORED not in answer.headers
