"""What Claude Code sends besides questions: late system messages, its billing header, tools that it loads later."""

from typing import Any

import pytest
from tests.engine.server.messages.messages_server import CALL, MESSAGE_FIELDS, QUESTION, RESULT, USE, WEATHER, serving
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.messages.requests import CountTokensRequest
from paternoster_engine.server.messages.translate import prompt_of

FIRST_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('only the first') }}"
    "{% endif %}{% endfor %}" + QWEN3
)


def system(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "system", "content": [{"type": "text", "text": text}], **fields}


def chat_of(**body: Any) -> list[tuple[str, Any]]:
    """Roles and texts of the chat."""
    chat = prompt_of(CountTokensRequest.model_validate(body)).body
    return [(message["role"], message["content"]) for message in chat["messages"]]


@pytest.mark.parametrize("template", [QWEN3, FIRST_ONLY])
async def test_a_system_message_behind_the_users(tokenizer: Tokenizer, template: str) -> None:
    late = {"system": "Be brief.", "messages": [*QUESTION, system("Nobody else is here.")]}
    async with serving(tokenizer.with_template(template), "one") as (_, client):
        answer = await client.messages.create(**MESSAGE_FIELDS | late)
        assert answer.content[0].text == "one"  # type: ignore[union-attr]
        async with client.messages.stream(**MESSAGE_FIELDS | late) as stream:
            assert await stream.get_final_text() == "one"
        counted = await client.messages.count_tokens(model="scripted", **late)
        assert counted.input_tokens == answer.usage.input_tokens
        # The next turn begins with the same prompt, in which the text keeps its place.
        more = [*late["messages"], {"role": "assistant", "content": "one"}, *QUESTION]  # type: ignore[misc]
        later = await client.messages.create(**MESSAGE_FIELDS | late | {"messages": more})
        assert (later.usage.cache_read_input_tokens or 0) >= counted.input_tokens // 8 * 8 - 8


def test_where_system_messages_stand() -> None:
    calling = {"role": "assistant", "content": [USE]}
    result = {"role": "user", "content": [RESULT]}
    assert chat_of(system="a", messages=[system("b"), *QUESTION]) == [
        ("system", "a\nb"),
        ("user", "Where does it rain?"),
    ]
    turns = chat_of(messages=[*QUESTION, calling, system("late"), result, system("later")])
    assert [role for role, _ in turns] == ["user", "assistant", "tool", "system"]
    assert turns[-1][1] == "late\nlater"
    turns = chat_of(messages=[*QUESTION, system("gone", clear_at="next_user_message"), calling, result])
    assert "gone" not in str(turns)
    assert chat_of(messages=[*QUESTION, system("here", clear_at="next_user_message")])[-1] == ("system", "here")


def test_the_effort_of_a_system_message_is_that_from_there_on() -> None:
    change = {"role": "system", "output_config": {"effort": "low"}}
    body = {"messages": [*QUESTION, change], "output_config": {"effort": "high"}}
    chat = prompt_of(CountTokensRequest.model_validate(body)).body
    assert (chat["reasoning_effort"], len(chat["messages"])) == ("low", 1)


async def test_the_billing_header_hides_no_prefix(tokenizer: Tokenizer) -> None:
    """Claude Code's first system block has another ``cch`` in each request."""
    rules = {"type": "text", "text": "Be brief. " * 40}
    async with serving(tokenizer, "one") as (server, client):
        cached = []
        for turn, header in enumerate(("cc_version=2.1.1.a1b; cch=00001;", "cc_version=2.1.1.c2d; cch=fffff;")):
            blocks = [{"type": "text", "text": f"x-anthropic-billing-header: {header}"}, rules]
            answer = await client.messages.create(**MESSAGE_FIELDS | {"system": blocks})
            counted = await client.messages.count_tokens(
                model="scripted", messages=QUESTION, system=f"x-anthropic-billing-header: {turn}\n{rules['text']}"
            )
            prompt = answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)
            assert counted.input_tokens == prompt
            cached.append((answer.usage.cache_read_input_tokens or 0) / prompt)
        assert cached[0] == 0
        assert cached[1] > 0.9
        later = await server.client.post(
            "/v1/messages", json=MESSAGE_FIELDS | {"system": "x-anthropic-billing-header: 1"}
        )
        assert later.headers["x-paternoster-ignored"] == "system[]=x-anthropic-billing-header"
        body = {"messages": [{"role": "user", "content": "x-anthropic-billing-header: 1"}]}
        assert chat_of(**body) == [("user", "x-anthropic-billing-header: 1")], "a user may write it"


DEFERRED: Any = WEATHER | {"name": "population", "defer_loading": True}
SEARCH: Any = {"name": "ToolSearch", "input_schema": {"type": "object"}}
LOADED = RESULT | {"content": [{"type": "tool_reference", "tool_name": "population"}]}


async def test_a_tool_that_a_search_loads(tokenizer: Tokenizer) -> None:
    """It is shown where it is loaded, so that the prompt before stays in the cache, and can be called from there on."""
    tools = [SEARCH, DEFERRED]
    call = CALL.replace("weather", "population") % "Rome"
    async with serving(tokenizer, call) as (_, client):
        before = await client.messages.create(**MESSAGE_FIELDS, tools=tools)
        assert [block.type for block in before.content] == ["text"], "it is not offered yet"
        turn = [{"role": "assistant", "content": [USE | {"name": "ToolSearch"}]}, {"role": "user", "content": [LOADED]}]
        after = await client.messages.create(**MESSAGE_FIELDS | {"messages": [*QUESTION, *turn]}, tools=tools)
        assert [(block.type, block.name) for block in after.content] == [("tool_use", "population")]  # type: ignore[union-attr]
        assert (after.usage.cache_read_input_tokens or 0) > 0.8 * before.usage.input_tokens


def test_when_deferred_tools_are_offered() -> None:
    def offered(tools: list[Any], *messages: Any) -> list[str]:
        offer = prompt_of(CountTokensRequest.model_validate({"tools": tools, "messages": [*QUESTION, *messages]})).offer
        return [*offer.tools]

    addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "population"}}
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "weather"}}
    assert offered([WEATHER, DEFERRED]) == ["weather"]
    assert offered([WEATHER, DEFERRED], {"role": "system", "content": [addition]}) == ["weather", "population"]
    assert offered([WEATHER, DEFERRED], {"role": "system", "content": [removal, addition]}) == ["population"]
    server_side = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    assert offered([server_side, WEATHER, DEFERRED]) == ["weather", "population"], "no search would load it"
