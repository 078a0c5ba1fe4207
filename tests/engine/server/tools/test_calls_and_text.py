"""Calls that are cut, arguments while they are written, and text around calls, in all three APIs of chats."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.engine.server.scripted_server import Server, scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
QUESTION = [{"role": "user", "content": "Weather?"}]
APIS: dict[str, dict[str, Any]] = {
    "chat/completions": {
        "messages": QUESTION,
        "tools": [
            {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("weather", "write")
        ],
    },
    "messages": {"messages": QUESTION, "tools": [{"name": n, "input_schema": SCHEMA} for n in ("weather", "write")]},
    "responses": {
        "input": QUESTION,
        "tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("weather", "write")],
    },
}
LIMITS = {"chat/completions": "max_completion_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}
FORCED: dict[str, Any] = {
    "chat/completions": {"type": "function", "function": {"name": "weather"}},
    "messages": {"type": "tool", "name": "weather"},
    "responses": {"type": "function", "name": "weather"},
}
REQUIRED: dict[str, Any] = {"chat/completions": "required", "messages": {"type": "any"}, "responses": "required"}
CUT = {"chat/completions": "length", "messages": "max_tokens", "responses": "incomplete"}


@pytest.fixture
async def server(tokenizer: Tokenizer) -> AsyncIterator[Server]:
    async with scripted_server(tokenizer.with_template(QWEN3))(**ROOM) as server:
        yield server


def _script_answer(server: Server, tokenizer: Tokenizer, text: str) -> None:
    server.runner.tokens = [*tokenizer.encode(text), tokenizer.eos_token_ids[0]]


def _events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line for line in response.text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
    return [json.loads(line[6:]) for line in lines]


def _of_whole(path: str, body: dict[str, Any]) -> tuple[list[str], list[tuple[str, Any]], str]:
    """Texts, calls, and why it ended."""
    if path == "chat/completions":
        (choice,) = body["choices"]
        message = choice["message"]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
        return [message["content"]] if message["content"] else [], calls, choice["finish_reason"]
    if path == "messages":
        texts = [block["text"] for block in body["content"] if block["type"] == "text"]
        calls = [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"]
        return texts, calls, body["stop_reason"]
    texts = ["".join(part["text"] for part in item["content"]) for item in body["output"] if item["type"] == "message"]
    calls = [(item["name"], item["arguments"]) for item in body["output"] if item["type"] == "function_call"]
    return [text for text in texts if text], calls, body["status"]


def _of_stream(path: str, events: list[dict[str, Any]]) -> tuple[list[str], list[tuple[str, Any]], str, int]:
    """Read a stream, and the number of pieces that arguments came in."""
    if path == "responses":
        pieces = sum(event["type"] == "response.function_call_arguments.delta" for event in events)
        return (*_of_whole(path, events[-1]["response"]), pieces)
    texts, calls, reason, pieces = [""], [], "", 0
    for event in events:
        if path == "messages":
            if event["type"] == "content_block_start":
                block = event["content_block"]
                calls += [[block["name"], ""]] if block["type"] == "tool_use" else []
                texts += [""] if block["type"] == "text" else []
            elif event["type"] == "content_block_delta":
                texts[-1] += event["delta"].get("text", "")
                if piece := event["delta"].get("partial_json"):
                    calls[-1][1] += piece
                    pieces += 1
            elif event["type"] == "message_delta":
                reason = event["delta"]["stop_reason"]
            continue
        (choice,) = event["choices"]
        texts[0] += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls") or []:
            if "id" in call:
                calls.append([call["function"]["name"], ""])
            calls[-1][1] += call["function"]["arguments"]
            pieces += bool(call["function"]["arguments"])
        reason = choice["finish_reason"] or reason
    if path == "messages":
        calls = [[name, json.loads(text) if text else {}] for name, text in calls if not text or text.endswith("}")]
    return [text for text in texts if text], [(name, arguments) for name, arguments in calls], reason, pieces


async def _both(server: Server, path: str, **fields: Any) -> tuple[list[str], list[tuple[str, Any]], str, int]:
    body = APIS[path] | ({"max_tokens": 900} if path == "messages" else {}) | fields
    whole = await server.client.post(f"/v1/{path}", json=body)
    assert whole.status_code == 200, whole.text
    streamed = await server.client.post(f"/v1/{path}", json=body | {"stream": True})
    texts, calls, reason, pieces = _of_stream(path, _events(streamed))
    assert _of_whole(path, whole.json()) == (texts, calls, reason)
    return texts, calls, reason, pieces


@pytest.mark.parametrize("path", APIS)
async def test_a_forced_call_that_is_cut_is_a_call(server: Server, tokenizer: Tokenizer, path: str) -> None:
    _script_answer(server, tokenizer, CALL)
    empty: Any = {} if path == "messages" else ""
    before = len(tokenizer.encode(CALL[: CALL.index("weather")]))
    for limit in range(1, len(tokenizer.encode(CALL[: CALL.index('{"city')]))):
        fields = {LIMITS[path]: limit}
        texts, calls, reason, _ = await _both(server, path, tool_choice=FORCED[path], **fields)
        assert (texts, calls, reason) == ([], [("weather", empty)], CUT[path]), limit
        texts, calls, reason, _ = await _both(server, path, tool_choice=REQUIRED[path], **fields)
        # Which of two it is is known when its name is over.
        assert (texts, reason) == ([], CUT[path])
        assert calls in ([], [("weather", empty)])
        assert limit > before or calls == []


@pytest.mark.parametrize("path", APIS)
async def test_texts_around_calls_stay_apart(server: Server, tokenizer: Tokenizer, path: str) -> None:
    for between, parted in (("\n\n", "\n\n\n\n"), ("\n", "\n\n"), ("", "\n")):
        _script_answer(server, tokenizer, f"I look it up.{between}{CALL}{between}Now the next one.\n{CALL}\n")
        texts, calls, _, _ = await _both(server, path)
        assert len(calls) == 2
        if path == "chat/completions":
            assert texts == [f"I look it up.{parted}Now the next one."]
        else:
            assert texts == ["I look it up.", f"{between * 2}Now the next one."]


@pytest.mark.parametrize("path", APIS)
async def test_no_mark_is_left_of_a_brace_too_many(server: Server, tokenizer: Tokenizer, path: str) -> None:
    _script_answer(server, tokenizer, CALL.replace("}}", "}}}"))
    texts, calls, _, _ = await _both(server, path)
    assert (texts, len(calls)) == ([], 1)


LONG = "".join(f"line {i} of a file\n" for i in range(60))
CODER = f"<tool_call>\n<function=write>\n<parameter=city>\n{LONG}\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize("path", APIS)
async def test_a_long_argument_comes_in_pieces(tokenizer: Tokenizer, path: str) -> None:
    template = tokenizer.with_template(QWEN3 + "{# <function= #}")
    async with scripted_server(template)(paced=True, **ROOM) as server:
        _script_answer(server, tokenizer, CODER)
        texts, ((name, arguments),), _, pieces = await _both(server, path)
        assert (texts, name) == ([], "write")
        assert (arguments if path == "messages" else json.loads(arguments)) == {"city": LONG}
        assert pieces > 100


async def test_log_probabilities_are_those_of_the_texts(tokenizer: Tokenizer) -> None:
    """The reader is quick enough to get each token by itself."""
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    async with scripted_server(tokenizer.with_template(QWEN3))(paced=True, **ROOM) as server:
        _script_answer(server, tokenizer, f"I look it up.\n\n{CALL}\n\nNow <the> next one.\n{CALL}\nDone.")
        response = await server.client.post("/v1/responses", json=APIS["responses"] | fields)
    output = response.json()["output"]
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    assert [part["text"].strip() for part in parts] == ["I look it up.", "Now <the> next one.", "Done."]
    for part in parts:
        assert "".join(token["token"] for token in part["logprobs"]).strip() == part["text"].strip()
