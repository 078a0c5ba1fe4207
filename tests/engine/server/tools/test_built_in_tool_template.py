"""Tools of models whose chat template reads none: the built-in template writes them, through every API."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.engine.server.scripted_server import Server, scripted_server

from paternoster_engine.model.tokenizer import Tokenizer

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
HEADER = "x-paternoster-tool-template"
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Tokyo", "Paris"]}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "Weather of a city.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Tokyo"}}\n</tool_call>'
USER = {"role": "user", "content": "Weather in Tokyo?"}
CALLED = {
    "role": "assistant",
    "content": "I look.",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Tokyo"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
CHAT = {"messages": [USER], "tools": TOOLS}
RESPONSES = {"input": "Weather in Tokyo?", "tools": [{"type": "function", **FUNCTION}]}
MESSAGES = {
    "messages": [USER],
    "max_tokens": 60,
    "tools": [{"name": "weather", "input_schema": PARAMETERS, "description": "Weather of a city."}],
}


async def _prompt(server: Server, **body: Any) -> str:
    tokens = await server.client.post("/tokenize", json=body)
    assert tokens.status_code == 200, tokens.text
    text = await server.client.post("/detokenize", json={"tokens": tokens.json()["tokens"]})
    prompt: str = text.json()["prompt"]
    return prompt


async def test_tools_calls_and_results_are_in_the_prompt(tokenizer: Tokenizer) -> None:
    async with scripted_server(tokenizer)(**ROOM) as server:
        prompt = await _prompt(server, messages=[USER, CALLED, RESULT], tools=TOOLS)
        assert f"<tools>\n{json.dumps(FUNCTION)}\n</tools>" in prompt
        assert f"<|im_start|>assistant\nI look.\n{CALL}<|im_end|>\n" in prompt
        assert "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n" in prompt
        # Earlier calls are written without tools as well, and what a user spells is no control token.
        history = await _prompt(server, messages=[USER, CALLED, {**RESULT, "content": "<|im_end|>"}])
        assert "<tools>" not in history
        assert f"{CALL}<|im_end|>\n<|im_start|>user\n<tool_response>\n<|im_end|>\n</tool_response>" in history


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"), [("chat/completions", CHAT), ("responses", RESPONSES), ("messages", MESSAGES)]
)
async def test_calls_are_read_through_every_api(
    tokenizer: Tokenizer, path: str, body: Mapping[str, Any], stream: bool
) -> None:
    async with scripted_server(tokenizer)(CALL, **ROOM) as server:
        response = await server.client.post(f"/v1/{path}", json={**body, "stream": stream})
        assert response.status_code == 200, response.text
        assert response.headers[HEADER] == "built-in"
        assert "<tool_call>" not in response.text
        assert _calls(response.text, stream) == [("weather", {"city": "Tokyo"})]


def _calls(text: str, stream: bool) -> list[tuple[str, Any]]:
    """Name and arguments of each call, of any of the three APIs."""
    frames = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")] if stream else []
    if stream and frames[0].get("object") == "chat.completion.chunk":
        pieces = [
            call["function"]
            for each in frames
            for choice in each["choices"]
            for call in choice["delta"].get("tool_calls") or ()
        ]
        return [(pieces[0]["name"], json.loads("".join(piece.get("arguments") or "" for piece in pieces)))]
    if stream and frames[0]["type"] == "message_start":
        name = next(each["content_block"]["name"] for each in frames if each["type"] == "content_block_start")
        return [(name, json.loads("".join(each.get("delta", {}).get("partial_json", "") for each in frames)))]
    whole = frames[-1]["response"] if stream else json.loads(text)
    if "choices" in whole:
        calls = [call["function"] for call in whole["choices"][0]["message"]["tool_calls"]]
        return [(call["name"], json.loads(call["arguments"])) for call in calls]
    if "output" in whole:
        return [(each["name"], json.loads(each["arguments"])) for each in whole["output"]]
    return [(each["name"], each["input"]) for each in whole["content"]]


async def test_without_tools_nothing_is_written_or_named(tokenizer: Tokenizer) -> None:
    async with scripted_server(tokenizer)(CALL, **ROOM) as server:
        for body in ({"messages": [USER]}, {"messages": [USER], "tools": TOOLS, "tool_choice": "none"}):
            answer = await server.client.post("/v1/chat/completions", json=body)
            assert HEADER not in answer.headers
            assert answer.json()["choices"][0]["message"]["content"] == CALL


@pytest.mark.parametrize("settings", [{"tool_template": "none"}, {"tool_parser": "pythonic"}, {"tool_parser": "none"}])
async def test_it_can_be_switched_off(tokenizer: Tokenizer, settings: dict[str, Any]) -> None:
    async with scripted_server(tokenizer)(CALL, args=settings, **ROOM) as server:
        answer = await server.client.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")
        assert "reads none" in answer.json()["error"]["message"]


async def test_templates_that_read_tools_write_them_themselves(tokenizer: Tokenizer) -> None:
    source = "{{ tools[0].function.name }}{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}"
    async with scripted_server(tokenizer.with_template(source))(**ROOM) as server:
        assert await _prompt(server, **CHAT) == "weatherWeather in Tokyo?"
        answer = await server.client.post("/v1/chat/completions", json=CHAT)
        assert HEADER not in answer.headers


async def test_calls_are_read_in_the_form_that_the_template_has_marks_of(tokenizer: Tokenizer) -> None:
    """A template that shows no tools, of a model that was trained to write calls in its own form."""
    marked = (tokenizer.chat_template or "") + "{# <tool_call> <function= #}"
    call = "<tool_call>\n<function=weather>\n<parameter=city>\nTokyo\n</parameter>\n</function>\n</tool_call>"
    async with scripted_server(tokenizer.with_template(marked))(call, **ROOM) as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT)
        assert response.headers[HEADER] == "built-in"
        assert _calls(response.text, stream=False) == [("weather", {"city": "Tokyo"})]
