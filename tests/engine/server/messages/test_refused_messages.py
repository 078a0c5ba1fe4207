"""What ``/v1/messages`` refuses, named in the client's own words."""

import json
from typing import Any

from messages_server import ASK, CALLING, FORMAT, QUESTION, RESULT, ROOM, USE, WEATHER, serving
from scripted_server import scripted_server

from paternoster_engine.model.tokenizer import Tokenizer

CLEAR = {"type": "clear_thinking_20251015", "keep": "all"}


def said(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"stop_sequences": [""]}, "stop_sequences.0"),
    ({"metadata": {"user_id": "x" * 257}}, "metadata.user_id"),
    ({"thinking": {"type": "enabled"}}, "thinking"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "max_tokens"),
    ({"thinking": {"type": "between_tools"}}, "thinking.type"),
    ({"output_config": {"effort": "huge"}}, "output_config.effort"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
    ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
    ({"tools": [{"name": "no spaces", "input_schema": {}}]}, "tools.0.name"),
    ({"tools": [{"name": "f", "input_schema": {"x": "y" * 70_000}}]}, "tools.0.input_schema"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"context_management": {"edits": [{}]}}, "context_management.edits.0.type"),
    ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits.0.type"),
    ({"context_management": {"edits": [CLEAR, {"type": "compact_20260112"}]}}, "context_management.edits.1.type"),
    ({"context_management": 1}, "context_management"),
    ({"chat_template_kwargs": 1, "thinking": {"type": "disabled"}}, "chat_template_kwargs"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [7]}, "messages.0"),
    ({"messages": [*QUESTION, CALLING]}, "messages"),
    ({"messages": [*QUESTION, {"role": "assistant", "content": ""}]}, "messages"),
    ({"messages": [*QUESTION, {"role": "assistant", "content": [USE, {"type": "text", "text": "x"}]}]}, "messages"),
    ({"messages": [*QUESTION, {"role": "system", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": []}]}, "messages.0.content"),
    ({"messages": QUESTION * 10_000}, "messages"),
    ({"tools": [WEATHER] * 10_000}, "tools"),
    (said({"type": "image", "source": {}}), "messages.0.content.0.type"),
    (said({"type": "document", "source": {}}), "messages.0.content.0.type"),
    (said({"type": "text"}), "messages.0.content.0"),
    (said({"type": "text", "text": "\ud800"}), "messages.0.content.0.text"),
    (said(USE), "messages.0.content"),
    (said({"type": "text", "text": "x"}, RESULT), "messages.0.content"),
    (said(RESULT), "messages"),
    (said(RESULT | {"content": [{"type": "image"}]}), "messages.0.content.0.content.0.type"),
    ({"messages": [*QUESTION, CALLING, *said(RESULT | {"tool_use_id": "u"})["messages"]]}, "messages"),
    ({"output_config": {"format": FORMAT}, "structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
    ({"output_config": {"format": FORMAT | {"schema": {"not": {}}}}}, "output_config.format.schema"),
]  # fmt: skip
"""What is changed, and which field is named."""
FOREIGN = ("response_format", "json_schema.", "tool_call_id", "role tool", "reasoning_effort", "continue_final_message")
"""Words of chat completions that are none of these clients'."""


async def test_what_is_refused_is_named(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one") as (server, _):
        for change, field in REFUSED:
            response = await server.client.post(
                "/v1/messages", content=json.dumps(ASK | change), headers={"content-type": "application/json"}
            )
            assert response.status_code == 400, (change, response.text)
            told = response.json()
            message = told["error"]["message"]
            assert told == {
                "type": "error", "error": {"type": "invalid_request_error", "message": message},
                "request_id": response.headers["request-id"],
            }  # fmt: skip
            assert message.startswith(field), change
            assert not any(word in message for word in FOREIGN), message


async def test_an_effort_that_no_template_reads(tokenizer: Tokenizer) -> None:
    """``none``, which a chat may send, is none of these clients' words."""
    async with scripted_server(tokenizer)("one", **ROOM) as server:
        response = await server.client.post("/v1/messages", json=ASK | {"output_config": {"effort": "low"}})
        assert response.status_code == 400
        message = "output_config.effort: this model's chat template reads none: leave it out"
        assert response.json()["error"]["message"] == message
