"""What ``/v1/messages`` refuses, named in the client's own words."""

import json
from typing import Any

import pytest
from anthropic.types import message_create_params
from anthropic.types.beta import message_create_params as beta_params
from tests.engine.server.messages.messages_server import (
    CALLING,
    FORMAT,
    MESSAGE_FIELDS,
    QUESTION,
    RESULT,
    USE,
    WEATHER,
    serving,
)

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.messages.requests import MessagesRequest


def user_turn(*content: Any) -> dict[str, Any]:
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
    ({"tools": [{"name": "f"}]}, "tools.0"),
    ({"tools": [{"type": "web_search_20250305"}, {"name": "no spaces", "input_schema": {}}]}, "tools.1.name"),
    ({"tools": [{"type": "computer_20251124", "name": "computer"}], "tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [{"type": "web_search_x", "name": "f"}], "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
    ({"tools": [{"name": "no spaces", "input_schema": {}}]}, "tools.0.name"),
    ({"tools": [{"name": "f", "input_schema": {"x": "y" * 70_000}}]}, "tools.0.input_schema"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
    ({"mcp_servers": "x"}, "mcp_servers"),
    ({"thread": {"id": "thread_1"}}, "thread"),
    ({"compaction": {"type": "summarize"}}, "compaction"),
    ({"context_management": {"edits": [{}]}}, "context_management.edits.0.type"),
    ({"context_management": 1}, "context_management"),
    ({"chat_template_kwargs": 1, "thinking": {"type": "disabled"}}, "chat_template_kwargs"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [7]}, "messages.0"),
    ({"messages": [*QUESTION, CALLING]}, "messages"),
    ({"messages": [*QUESTION, {"role": "assistant", "content": ""}]}, "messages"),
    ({"messages": [*QUESTION, {"role": "assistant", "content": [USE, {"type": "text", "text": "x"}]}]}, "messages"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
    ({"messages": [*QUESTION, {"role": "system", "content": [USE]}]}, "messages.1.content"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": []}]}, "messages.0.content"),
    ({"messages": QUESTION * 10_000}, "messages"),
    ({"tools": [WEATHER] * 10_000}, "tools"),
    (user_turn({"type": "image", "source": {}}), "messages.0.content.0.type"),
    (user_turn({"type": "document", "source": {}}), "messages.0.content.0.source.type"),
    (user_turn({"type": "text"}), "messages.0.content.0"),
    (user_turn({"type": "text", "text": "\ud800"}), "messages.0.content.0.text"),
    (user_turn(USE), "messages.0.content"),
    (user_turn({"type": "text", "text": "x"}, RESULT), "messages.0.content"),
    (user_turn(RESULT), "messages"),
    (user_turn(RESULT | {"content": [{"type": "image"}]}), "messages.0.content.0.content.0.type"),
    ({"messages": [*QUESTION, CALLING, *user_turn(RESULT | {"tool_use_id": "u"})["messages"]]}, "messages"),
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
                "/v1/messages",
                content=json.dumps(MESSAGE_FIELDS | change),
                headers={"content-type": "application/json"},
            )
            assert response.status_code == 400, (change, response.text)
            error_body = response.json()
            message = error_body["error"]["message"]
            assert error_body == {
                "type": "error", "error": {"type": "invalid_request_error", "message": message},
                "request_id": response.headers["request-id"],
            }  # fmt: skip
            assert message.startswith(field), change
            assert not any(word in message for word in FOREIGN), message


CLEAR = {"type": "clear_thinking_20251015", "keep": "all"}
SEARCHED = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "url": "x"}]},
    {"type": "text", "text": "It rains."},
]
IGNORED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [WEATHER, {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]},
     "tools[].type=web_search_20250305"),
    ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}], "mcp_servers": [{"type": "url", "url": "x"}]},
     "mcp_servers, tools[].type=mcp_toolset"),
    ({"container": {"id": "c", "skills": []}}, "container"),
    ({"speed": "fast"}, "speed=fast"),
    ({"thinking": {"type": "adaptive", "display": "updates"}}, "thinking.display=updates"),
    ({"service_tier": "priority"}, "service_tier=priority"),
    ({"context_management": {"edits": [CLEAR, {"type": "compact_20260112", "trigger": {}}]}},
     "context_management.edits[].type=compact_20260112"),
    ({"messages": [*QUESTION, {"role": "assistant", "content": SEARCHED}, *QUESTION]},
     "messages[].content[].type=server_tool_use, messages[].content[].type=web_search_tool_result"),
    ({"system": "x-anthropic-billing-header: cch=1;"}, "system[]=x-anthropic-billing-header"),
    ({"fallbacks": "default", "diagnostics": {}}, "diagnostics, fallbacks"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "names"), IGNORED)
async def test_what_an_answer_can_do_without_is_ignored_and_named(
    tokenizer: Tokenizer, change: dict[str, Any], names: str
) -> None:
    async with serving(tokenizer, "one") as (server, _):
        response = await server.client.post("/v1/messages", json=MESSAGE_FIELDS | change)
        assert response.status_code == 200, response.text
        assert response.headers["x-paternoster-ignored"] == names


DECIDED = {
    "billing_policy",
    "diagnostics",
    "fallback_credit_token",
    "fallbacks",
    "prefill",
    "betas",
    "user_profile_id",
    "workspace_id",
}
"""Fields of Anthropic's client that are ignored because no type has them."""


def test_of_every_field_of_anthropics_client_it_is_decided_what_becomes_of_it() -> None:
    """The client's next version may have more: serve them, refuse them, or say here that they are ignored."""
    own = {
        *message_create_params.MessageCreateParamsBase.__annotations__,
        *beta_params.MessageCreateParamsBase.__annotations__,
    }
    assert own - MessagesRequest.model_fields.keys() <= DECIDED
