"""``/v1/responses`` over the wire, with the official client and its types."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter
from tests.engine.server.leaving import listening, reasons_of_ends
from tests.engine.server.scripted_server import Server, scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "%s"}}\n</tool_call>'
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@asynccontextmanager
async def serving(tokenizer: Tokenizer, text: str, **config: Any) -> AsyncIterator[tuple[Server, openai.AsyncOpenAI]]:
    """A server whose template has tools and reasoning."""
    async with scripted_server(tokenizer.with_template(QWEN3))(text, **ROOM | config) as server:
        yield (
            server,
            openai.AsyncOpenAI(base_url="http://engine/v1", api_key="x", http_client=server.client, max_retries=0),
        )


def script_answer(server: Server, tokenizer: Tokenizer, text: str) -> None:
    server.runner.tokens = [*tokenizer.encode(text), tokenizer.eos_token_ids[0]]


async def test_text_in_text_out(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one two three") as (server, client):
        answer = await client.responses.create(model="scripted", input="Hi", instructions="Be brief.")
        Response.model_validate(answer.model_dump())
        assert (answer.status, answer.output_text, answer.store) == ("completed", "one two three", False)
        assert answer.usage is not None
        body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
        chat = (await server.client.post("/v1/chat/completions", json=body)).json()
        assert answer.usage.input_tokens == chat["usage"]["prompt_tokens"]
        assert answer.usage.output_tokens == chat["usage"]["completion_tokens"]


async def test_a_stream_says_what_the_plain_answer_says(tokenizer: Tokenizer) -> None:
    text = "<think>\nLet me see.\n</think>\n\nIt rains." + CALL % "Rome"
    async with serving(tokenizer, text, paced=True) as (_, client):
        response_fields: dict[str, Any] = {"model": "scripted", "input": "Weather?", "tools": [WEATHER]}
        whole = await client.responses.create(**response_fields)
        events = [event async for event in await client.responses.create(**response_fields, stream=True)]
        for event in events:
            assert EVENT.validate_python(event.model_dump()).type == event.type
        assert [event.sequence_number for event in events] == list(range(len(events)))
        last = events[-1]
        assert last.type == "response.completed"
        assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
        assert _without_ids(last.response) == _without_ids(whole)
        kinds = [event.type for event in events if event.type.endswith("delta")]
        assert kinds == sorted(kinds, key=kinds.index), "an item is told to its end before the next one"
        assert kinds.count("response.output_text.delta") > 1
        assert whole.usage is not None
        assert whole.usage.output_tokens_details.reasoning_tokens > 0


async def test_log_probabilities_of_the_text_alone(tokenizer: Tokenizer) -> None:
    """Chat completions have the same, without those of reasoning and calls; in events without bytes."""
    text = "<think>\nLet me see.\n</think>\n\nIt < rains.\n" + CALL % "Rome"
    async with serving(tokenizer, text, paced=True) as (server, client):
        response_fields: dict[str, Any] = {
            "model": "scripted",
            "input": "Weather?",
            "tools": [WEATHER],
            "top_logprobs": 2,
        }
        whole = await client.responses.create(**response_fields, include=["message.output_text.logprobs"])
        Response.model_validate(whole.model_dump(), strict=True)
        message = next(item for item in whole.output if item.type == "message")
        (part,) = message.content
        assert part.type == "output_text"
        assert part.logprobs is not None
        assert "".join(entry.token for entry in part.logprobs).strip() == part.text == "It < rains."
        assert all(
            len(entry.top_logprobs) == 2 and bytes(entry.bytes).decode() == entry.token for entry in part.logprobs
        )
        tools = [{"type": "function", "function": {key: WEATHER[key] for key in ("name", "parameters")}}]
        body = {"messages": [{"role": "user", "content": "Weather?"}], "tools": tools, "seed": 1}
        chat = await server.client.post("/v1/chat/completions", json=body | {"logprobs": True, "top_logprobs": 2})
        all_tokens = {entry["token"] for entry in chat.json()["choices"][0]["logprobs"]["content"]}
        assert all_tokens > {entry.token for entry in part.logprobs}

        stream = await client.responses.create(**response_fields, include=["message.output_text.logprobs"], stream=True)
        events = [event async for event in stream]
        for event in events:
            assert EVENT.validate_python(event.model_dump()).type == event.type
        deltas = [event for event in events if event.type == "response.output_text.delta"]
        done = next(event for event in events if event.type == "response.output_text.done")
        streamed = [entry for event in deltas for entry in event.logprobs]
        assert [entry.token for entry in streamed] == [entry.token for entry in part.logprobs]
        assert [entry.model_dump() for entry in done.logprobs] == [entry.model_dump() for entry in streamed]
        last = events[-1]
        assert last.type == "response.completed"
        assert last.response.top_logprobs == 2
        assert _texts_told(last.response) == _texts_told(whole)
        plain = await client.responses.create(**response_fields)
        assert all(part.logprobs == [] for item in plain.output if item.type == "message" for part in item.content)


def _texts_told(response: Response) -> list[str]:
    return [
        entry.token
        for item in response.output
        if item.type == "message"
        for part in item.content
        if part.type == "output_text"
        for entry in part.logprobs or []
    ]


def _without_ids(response: Response) -> Any:
    """Without what differs between any two."""
    document = response.model_dump(exclude={"id", "created_at", "completed_at", "usage"})
    for item in document["output"]:
        item.pop("id")
        item.pop("call_id", None)
    return document


async def test_the_clients_own_stream_adds_up(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one two three") as (_, client):
        async with client.responses.stream(model="scripted", input="Hi") as stream:
            async for event in stream:
                assert event.type.startswith("response.")
            final = await stream.get_final_response()
        assert final.output_text == "one two three"


async def test_three_turns_with_tools(tokenizer: Tokenizer) -> None:
    """The client sends back what it got, as agents do."""
    async with serving(tokenizer, CALL % "Rome" + CALL % "Oslo") as (server, client):
        conversation: list[Any] = [{"role": "user", "content": "Where does it rain?"}]
        for turn, answer_text in enumerate([CALL % "Rome" + CALL % "Oslo", CALL % "Bern", "In Bern."]):
            script_answer(server, tokenizer, answer_text)
            answer = await client.responses.create(model="scripted", input=conversation, tools=[WEATHER])
            conversation += answer.output
            calls = [item for item in answer.output if item.type == "function_call"]
            assert len(calls) == (2, 1, 0)[turn]
            for call in calls:
                assert json.loads(call.arguments)["city"] in ("Rome", "Oslo", "Bern")
                output = {"type": "function_call_output", "call_id": call.call_id, "output": "dry"}
                conversation.append(output)
        assert answer.output_text == "In Bern."


class Rain(BaseModel):
    city: str
    millimetres: int


async def test_max_output_tokens_makes_it_incomplete(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one two three four") as (_, client):
        answer = await client.responses.create(model="scripted", input="Hi", max_output_tokens=2)
        assert (answer.status, answer.output_text) == ("incomplete", "one two")
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
        assert answer.output[-1].status == "incomplete"  # type: ignore[union-attr]
        stream = await client.responses.create(model="scripted", input="Hi", max_output_tokens=2, stream=True)
        assert [event.type async for event in stream][-1] == "response.incomplete"


async def test_only_the_first_call_without_parallel_calls(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, CALL % "Rome" + CALL % "Oslo") as (_, client):
        answer = await client.responses.create(model="scripted", input="Hi", tools=[WEATHER], parallel_tool_calls=False)
        (call,) = answer.output
        assert call.type == "function_call"
        assert json.loads(call.arguments) == {"city": "Rome"}


HISTORY = [
    {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}],
    },
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "user", "content": "c"},
]  # fmt: skip


async def test_forms_of_items(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one") as (server, _):
        response = await server.client.post("/v1/responses", json={"input": HISTORY, "instructions": "Be brief."})
        assert response.status_code == 200, response.text
        messages = [
            {"role": "system", "content": "Be brief.\n\nBe kind."},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b\nno", "reasoning_content": "hm"},
            {"role": "user", "content": "c"},
        ]
        chat = await server.client.post("/v1/chat/completions", json={"messages": messages})
        assert response.json()["usage"]["input_tokens"] == chat.json()["usage"]["prompt_tokens"]


HARMLESS = {
    "store": False, "background": False, "truncation": "disabled", "include": ["reasoning.encrypted_content"],
    "service_tier": "auto", "metadata": {"a": "b"}, "prompt_cache_key": "k", "safety_identifier": "s", "user": "me",
    "text": {"format": {"type": "text"}, "verbosity": "medium"}, "reasoning": {"summary": "auto"}, "tools": [],
    "tool_choice": "auto", "previous_response_id": None, "temperature": None, "stream": None, "max_tool_calls": 3,
    "seed": 7, "top_k": -1, "max_output_tokens": 1,
}  # fmt: skip


async def test_harmless_values_are_taken(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one") as (server, _):
        response = await server.client.post("/v1/responses", json={"input": "Hi"} | HARMLESS)
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("verbosity", ["low", "medium", "high"])
async def test_verbosity_is_a_hint(tokenizer: Tokenizer, verbosity: Any) -> None:
    """It is one in chat completions, too."""
    async with serving(tokenizer, "one") as (_, client):
        answer = await client.responses.create(model="scripted", input="Hi", text={"verbosity": verbosity})
        assert answer.output_text == "one"
        assert answer.text is not None
        assert answer.text.verbosity == verbosity


async def test_chats_extensions_act_here_too(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one two three") as (server, client):
        (third,) = tokenizer.encode(" three")
        for change, text in (
            ({"stop": "two"}, "one "),
            ({"stop_token_ids": [third]}, "one two"),
            ({"min_tokens": 5, "ignore_eos": True, "max_output_tokens": 5}, "one two threeone"),
        ):
            answer = await client.responses.create(model="scripted", input="Hi", extra_body=change)
            assert answer.output_text == text, change
        response = await server.client.post("/v1/responses", json={"input": "Hi", "stop": "two"})
        assert "x-paternoster-ignored" not in response.headers


async def test_unknown_fields_are_left_out_and_told(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one") as (server, _):
        item = {"role": "user", "content": "Hi", "mood": "good"}
        response = await server.client.post("/v1/responses", json={"input": [item], "colour": "red"})
        assert response.status_code == 200, response.text
        assert response.headers["x-paternoster-ignored"] == "colour, input[].mood"


async def test_what_a_template_refuses_is_the_input(tokenizer: Tokenizer) -> None:
    refusing = tokenizer.with_template("{{ raise_exception('never') }}")
    async with scripted_server(refusing)("one") as server:
        response = await server.client.post("/v1/responses", json={"input": "Hi"})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "input")
        assert "never" in response.json()["error"]["message"]


CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
REFUSED: list[tuple[dict[str, Any], str | None]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"background": True}, "background"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"input": "word " * 4000}, None),
    ({"temperature": 3}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"priority": 1}, "priority"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"stop_token_ids": [-1]}, "stop_token_ids.0"),
    ({"chat_template_kwargs": 1}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
    ({"user": "x" * 257}, "user"),
    ({"metadata": {"a": "x" * 513}}, "metadata"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
    ({"truncation": 1}, "truncation"),
    ({"include": 1}, "include"),
    ({"tools": [{}]}, "tools.0.type"),
    ({"tools": [{"type": "web_search"}, {"type": "function", "name": "no spaces"}]}, "tools.1.name"),
    (
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "no spaces"}]}]},
        "tools.0.tools.0.name",
    ),
    ({"tools": [WEATHER] * 10_000}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools.0"),
    ({"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar"}}]}, "tools.0.format"),
    (
        {
            "tools": [
                {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "regex", "definition": "("}}
            ]
        },
        "tools.0.format.definition",
    ),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
    ({"tool_choice": 1}, "tool_choice"),
    ({"reasoning": {"effort": "some"}}, "reasoning.effort"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    ({"input": []}, "input"),
    ({"input": None}, "input"),
    ({"input": 7}, "input"),
    ({"input": {}}, "input"),
    ({"input": [7]}, "input.0"),
    ({"input": [{"content": "no role"}]}, "input.0"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.type"),
    ({"input": [{"type": "computer_call"}]}, "input.0.type"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "input.0"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input"),
    ({"input": [CALLED, {"type": "function_call_output", "call_id": "d", "output": "x"}]}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0.type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input.0.content.0"),
    ({"input": [{"role": "user", "content": "\ud800"}]}, "input.0.content"),
    ({"input": [{"role": "user", "content": "x"}] * 10_000}, "input"),
    ({"text": {"verbosity": 1}}, "text.verbosity"),
    ({"text": {"format": FORMAT}, "structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
    ({"text": {"format": FORMAT | {"schema": {"not": {}}}}}, "text.format.schema"),
]
"""What is changed, and which field is named."""
FOREIGN = ("response_format", "json_schema.", "tool_call_id", "role tool", "reasoning_effort", "max_tokens")
"""Words of chat completions that are none of these clients'."""


async def test_what_is_refused_is_named(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one") as (server, _):
        for change, param in REFUSED:
            response = await server.client.post(
                "/v1/responses",
                content=json.dumps({"input": "Hi"} | change),
                headers={"content-type": "application/json"},
            )
            assert response.status_code == 400, (change, response.text)
            error = response.json()["error"]
            assert (error["type"], error["param"]) == ("BadRequestError", param)
            assert len(error["message"]) <= 4000
            assert param is None or error["message"].startswith(param)
            assert "messages" not in error["message"] or param == "chat_template_kwargs"
            assert not any(word in error["message"] for word in FOREIGN), error["message"]


async def test_the_client_raises_its_own_errors(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one", broken_steps=[1]) as (_, client):
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="other", input="Hi")
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(model="scripted", input="Hi")


async def test_a_failure_in_mid_stream_is_told(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one two three four five", broken_steps=[3], paced=True) as (_, client):
        events = [event async for event in await client.responses.create(model="scripted", input="Hi", stream=True)]
        last = events[-1]
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert "failed" in last.response.error.message
        assert last.response.output_text.startswith("one")


async def test_a_client_that_leaves_ends_its_sequence(tokenizer: Tokenizer) -> None:
    async with (
        serving(tokenizer, "", paced=True) as (server, _),
        listening(server.state) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client,
    ):
        server.runner.tokens = tokenizer.encode("one two three four")
        stream = await client.responses.create(model="scripted", input="Hi", stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        assert await reasons_of_ends(server) == {"abort": 1}
