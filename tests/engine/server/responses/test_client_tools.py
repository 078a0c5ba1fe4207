"""Tools of the Responses API that clients run: custom ones, those of namespaces, a search; and their items."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import response_create_params
from tests.engine.server.scripted_server import Server, scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.app import create_app
from paternoster_engine.server.responses.requests import ResponsesRequest
from paternoster_engine.server.responses.translate import chat_of
from paternoster_engine.server.translation.argument_text import ArgumentText

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
SHELL: Any = {"type": "function", "name": "shell", "parameters": SCHEMA}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Edit files."}
AGENTS: Any = {"type": "namespace", "name": "agents_v1", "description": "Others.", "tools": [SHELL, PATCH]}
SEARCH: Any = {"type": "tool_search", "execution": "client", "parameters": SCHEMA}
QUESTION = {"role": "user", "content": "Hi"}


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@asynccontextmanager
async def serving(
    tokenizer: Tokenizer, text: str, *, paced: bool = False
) -> AsyncIterator[tuple[Server, openai.AsyncOpenAI]]:
    async with scripted_server(tokenizer.with_template(QWEN3))(text, paced=paced, **ROOM) as server:
        transport = httpx2.ASGITransport(create_app(server.state), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport) as http:
            yield server, openai.AsyncOpenAI(base_url="http://engine/v1", api_key="x", http_client=http, max_retries=0)


@pytest.mark.parametrize(
    ("answer_text", "item"),
    [
        (call("shell", city="Rome"), {"type": "function_call", "name": "shell", "arguments": '{"city": "Rome"}'}),
        (call("apply_patch", input='"a"\n'), {"type": "custom_tool_call", "name": "apply_patch", "input": '"a"\n'}),
        (
            call("agents_v1__shell", city="Rome"),
            {"type": "function_call", "namespace": "agents_v1", "name": "shell", "arguments": '{"city": "Rome"}'},
        ),
        (
            call("agents_v1__apply_patch", input="x"),
            {"type": "custom_tool_call", "namespace": "agents_v1", "name": "apply_patch", "input": "x"},
        ),
        (
            call("tool_search", city="Rome"),
            {"type": "tool_search_call", "execution": "client", "arguments": {"city": "Rome"}},
        ),
    ],
)  # fmt: skip
async def test_three_turns_with_a_tool(tokenizer: Tokenizer, answer_text: str, item: dict[str, Any]) -> None:
    """The client sends back what it got; the next prompt begins with the one before."""
    tools = [SHELL, PATCH, AGENTS, SEARCH]
    async with serving(tokenizer, answer_text) as (_, client):
        conversation: list[Any] = [QUESTION]
        cached = prompt = 0
        for _ in range(3):
            answer = await client.responses.create(model="scripted", input=conversation, tools=tools)
            (made,) = answer.output
            assert {name: getattr(made, name) for name in item} == item
            assert answer.usage is not None
            cached = answer.usage.input_tokens_details.cached_tokens
            assert cached >= 0.9 * prompt - 8
            prompt = answer.usage.input_tokens
            output: dict[str, Any] = {"type": item["type"] + "_output", "call_id": made.call_id}  # type: ignore[union-attr]
            output |= {"tools": []} if item["type"] == "tool_search_call" else {"output": "ok"}
            conversation += [
                made.model_dump(exclude_none=True),
                output | {"type": output["type"].replace("search_call_", "search_")},
            ]
        assert cached > 0


async def test_the_text_of_a_custom_tool_is_streamed(tokenizer: Tokenizer) -> None:
    text = 'line "one"\nline two \\ é'
    async with serving(tokenizer, call("apply_patch", input=text), paced=True) as (_, client):
        stream = await client.responses.create(model="scripted", input="Hi", tools=[PATCH], stream=True)
        events = [event async for event in stream]
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    (done,) = [event for event in events if event.type == "response.custom_tool_call_input.done"]
    assert len(deltas) > 3
    assert "".join(deltas) == done.input == text
    assert events[-1].type == "response.completed"
    assert events[-1].response.output[0].input == text  # type: ignore[union-attr]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans(), st.lists(st.integers(0, 60), max_size=8))
def test_the_text_of_an_argument_as_it_is_written(text: str, ascii: bool, cuts: list[int]) -> None:
    written = json.dumps({"input": text}, ensure_ascii=ascii)
    reader = ArgumentText("input")
    places = sorted({0, len(written), *(cut for cut in cuts if cut < len(written))})
    assert "".join(reader.add_json(written[start:end]) for start, end in pairwise(places)) + reader.read_rest() == text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('{"patch": "x"}', "x"), ("no JSON", "no JSON"), ('{"input": 3}', '{"input": 3}'), ("", ""), ("{}", "{}"),
        ('{"input": "cut', "cut"), ('{"input": "\\ud83d"}', "\ufffd"), ('{"input": "a", "b": 1}', "a"),
    ],
)  # fmt: skip
def test_arguments_of_another_form(written: str, text: str) -> None:
    reader = ArgumentText("input")
    assert reader.add_json(written) + reader.read_rest() == text


def chat(**body: Any) -> Any:
    return chat_of(ResponsesRequest.model_validate({"input": [QUESTION]} | body))


def test_formats_of_custom_tools() -> None:
    regex = PATCH | {"format": {"type": "grammar", "syntax": "regex", "definition": "a|b"}}
    (function,) = [tool["function"] for tool in chat(tools=[regex]).body["tools"]]
    assert function["strict"] is True
    assert function["parameters"]["properties"]["input"] == {"type": "string", "pattern": "^(?:a|b)$"}
    lark = PATCH | {"format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}}
    (function,) = [tool["function"] for tool in chat(tools=[lark]).body["tools"]]
    assert 'start: "x"' in function["description"]
    assert function["description"].startswith("Edit files.")


def test_which_tools_are_offered() -> None:
    def offered(**body: Any) -> list[str]:
        return [*chat(**body).offer.tools]

    waiting = SHELL | {"defer_loading": True}
    found = {"type": "tool_search_output", "call_id": "s", "tools": [AGENTS | {"tools": [waiting]}]}
    history = [QUESTION, {"type": "tool_search_call", "call_id": "s", "arguments": {"query": "x"}}, found]
    assert offered(tools=[SHELL, PATCH, AGENTS, SEARCH, {"type": "web_search"}]) == [
        "shell", "apply_patch", "agents_v1__shell", "agents_v1__apply_patch", "tool_search",
    ]  # fmt: skip
    assert offered(tools=[SEARCH, waiting]) == ["tool_search"]
    assert offered(tools=[SEARCH, waiting], input=history) == ["tool_search", "agents_v1__shell"]
    assert offered(tools=[{"type": "tool_search"}, waiting]) == ["shell"], "no search would find it"
    assert offered(input=[{"type": "additional_tools", "role": "developer", "tools": [PATCH]}, QUESTION]) == [
        "apply_patch"
    ]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "apply_patch"}]}
    assert offered(tools=[SHELL, PATCH], tool_choice=allowed) == ["apply_patch"]
    assert chat(tools=[SHELL, PATCH], tool_choice=allowed).body["tool_choice"] == "required"
    chosen = {"type": "function", "namespace": "agents_v1", "name": "shell"}
    assert chat(tools=[AGENTS], tool_choice=chosen).body["tool_choice"]["function"] == {"name": "agents_v1__shell"}


def test_tools_that_are_offered_later_are_shown_there() -> None:
    added = {"type": "additional_tools", "role": "developer", "tools": [PATCH]}
    made = chat(tools=[SHELL], input=[QUESTION, added])
    assert made.offer.shown_later == {"apply_patch"}
    assert "apply_patch" in made.body["messages"][-1]["content"]
    assert chat(input=[added, QUESTION]).offer.shown_later == frozenset()


ITEMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}, {"name": "local_shell"}),
    ({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}, {"name": "shell"}),
    ({"type": "apply_patch_call", "call_id": "c", "operation": {"diff": "x"}}, {"name": "apply_patch"}),
    ({"type": "mcp_call", "id": "c", "name": "f", "arguments": "{}", "output": "done"}, {"name": "f"}),
]


@pytest.mark.parametrize(("item", "function"), ITEMS)
async def test_items_of_calls_are_in_the_prompt(tokenizer: Tokenizer, item: Any, function: Any) -> None:
    output = {"type": f"{item['type']}_output", "call_id": "c", "output": [{"stdout": "done"}]}
    history = [QUESTION, item, *([] if item["type"] == "mcp_call" else [output])]
    _, calling, result = chat(input=history).body["messages"]
    assert calling["tool_calls"][0]["function"]["name"] == function["name"]
    assert "done" in result["content"]
    async with serving(tokenizer, "one") as (server, _):
        assert (await server.client.post("/v1/responses", json={"input": history})).status_code == 200


IGNORED: list[tuple[dict[str, Any], str]] = [
    ({"store": True, "truncation": "auto", "service_tier": "flex"}, "service_tier=flex, store, truncation=auto"),
    ({"truncation": "oldest"}, "truncation=oldest"),
    ({"text": {"verbosity": "max"}}, "text.verbosity=max"),
    ({"reasoning": {"summary": "full", "generate_summary": "full"}},
     "reasoning.generate_summary=full, reasoning.summary=full"),
    ({"input": [QUESTION | {"execution": "sandbox"}]}, "input[].execution=sandbox"),
    ({"tools": [SHELL, {"type": "web_search", "external_web_access": True}, {"type": "image_generation"}]},
     "tools[].type=image_generation, tools[].type=web_search"),
    ({"tools": [{"type": "local_shell"}, {"type": "tool_search"}, {"type": "mcp", "server_label": "x"}]},
     "tools[].type=local_shell, tools[].type=mcp, tools[].type=tool_search"),
    ({"tools": [AGENTS | {"tools": [SHELL, {"type": "computer"}]}]}, "tools[].tools[].type=computer"),
    ({"tools": [PATCH | {"format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}}]},
     "tools[].format.syntax=lark"),
    ({"input": [QUESTION, {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "x"}}]},
     "input[].type=web_search_call"),
    ({"include": ["reasoning.encrypted_content", "web_search_call.action.sources"]},
     "include=web_search_call.action.sources"),
    ({"context_management": [{"type": "compaction"}], "client_metadata": {}}, "client_metadata, context_management"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "names"), IGNORED)
async def test_what_an_answer_can_do_without_is_ignored_and_named(
    tokenizer: Tokenizer, change: dict[str, Any], names: str
) -> None:
    async with serving(tokenizer, "one") as (server, _):
        response = await server.client.post("/v1/responses", json={"input": "Hi"} | change)
        assert response.status_code == 200, response.text
        assert response.headers["x-paternoster-ignored"] == names
        assert (response.json()["store"], response.json()["truncation"]) == (False, "disabled")


DECIDED = {"access_programs", "background_options", "image", "prompt_cache_options"}
"""Fields of OpenAI's client that are ignored because no type has them."""


def test_of_every_field_of_openais_client_it_is_decided_what_becomes_of_it() -> None:
    """The client's next version may have more: serve them, refuse them, or say here that they are ignored."""
    own = response_create_params.ResponseCreateParamsBase.__annotations__
    assert own.keys() - ResponsesRequest.model_fields.keys() <= DECIDED
