"""``/v1/messages`` over the wire, with the official client and its types."""

from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import Message
from tests.engine.server.leaving import listening, reasons_of_ends
from tests.engine.server.messages.messages_server import (
    CALL,
    MESSAGE_FIELDS,
    QUESTION,
    RESULT,
    WEATHER,
    script_answer,
    serving,
)
from tests.engine.server.official_types import events

from paternoster_contract.access.key_files import KeyFiles
from paternoster_engine.core.request import FinishReason
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.app import create_app
from paternoster_engine.server.generation.failures import (
    FAILURES,
    DeadlineExceeded,
    EngineEnding,
    GrammarTooComplex,
    StepFailed,
)
from paternoster_engine.server.state import ServerState


def _prompt(message: Message) -> int:
    """Tokens of it, as Anthropic's clients add them up."""
    usage = message.usage
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


async def test_text_in_text_out(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one two three") as (server, client):
        answer = await client.messages.create(**MESSAGE_FIELDS, system="Be brief.")
        Message.model_validate(answer.model_dump())
        (block,) = answer.content
        assert block.type == "text"
        assert (block.text, answer.stop_reason, answer.stop_sequence) == ("one two three", "end_turn", None)
        chat = {"messages": [{"role": "system", "content": "Be brief."}, *QUESTION]}
        usage = (await server.client.post("/v1/chat/completions", json=chat)).json()["usage"]
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
            usage["prompt_tokens"], usage["completion_tokens"],
        )  # fmt: skip


async def test_a_stream_says_what_the_plain_answer_says(tokenizer: Tokenizer) -> None:
    text = "<think>\nLet me see.\n</think>\n\nIt rains." + CALL % "Rome" + CALL % "Oslo"
    async with serving(tokenizer, text, paced=True) as (_, client):
        whole = await client.messages.create(**MESSAGE_FIELDS, tools=[WEATHER])
        async with client.messages.stream(**MESSAGE_FIELDS, tools=[WEATHER]) as stream:
            texts = [piece async for piece in stream.text_stream]
            final = await stream.get_final_message()
        assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
        # The second found the first one's prompt in the cache.
        assert _prompt(final) == _prompt(whole) == whole.usage.input_tokens
        assert final.usage.cache_read_input_tokens == _prompt(final) // 8 * 8
        final.usage = whole.usage
        assert _without_ids(final) == _without_ids(whole)
        assert len(texts) > 1
        assert whole.stop_reason == "tool_use"


def _without_ids(message: Message) -> Any:
    """Without what differs between any two, and without what the client's own stream adds."""
    document = message.model_dump(exclude={"id"}, exclude_none=True)
    for block in document["content"]:
        block.pop("id", None)
    return document


async def test_three_turns_with_tools(tokenizer: Tokenizer) -> None:
    """The client sends back what it got, as agents do."""
    async with serving(tokenizer, "") as (server, client):
        conversation = list(QUESTION)
        for turn, answer_text in enumerate(
            ["<think>\nHm.\n</think>\n\n" + CALL % "Rome" + CALL % "Oslo", CALL % "Bern", "In Bern."]
        ):
            script_answer(server, tokenizer, answer_text)
            answer = await client.messages.create(**MESSAGE_FIELDS | {"messages": conversation}, tools=[WEATHER])
            counted = await client.messages.count_tokens(model="scripted", messages=conversation, tools=[WEATHER])
            assert counted.input_tokens == _prompt(answer)
            calls = [block for block in answer.content if block.type == "tool_use"]
            assert len(calls) == (2, 1, 0)[turn]
            conversation.append({"role": "assistant", "content": answer.content})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": "dry",
                    "is_error": call.input == {"city": "Rome"},
                }
                for call in calls
            ]
            conversation.append({"role": "user", "content": results})
        (block,) = answer.content
        assert block.type == "text"
        assert block.text == "In Bern."


async def test_what_the_template_is_told(tokenizer: Tokenizer) -> None:
    """Neighbours of one role are one turn; a failed tool is described in words; marks of what to cache are nothing."""
    marked = {"cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b", **marked}, {"type": "text", "text": "c"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                RESULT | {"content": [{"type": "text", "text": "no"}], "is_error": True},
                {"type": "text", "text": "d"},
            ],
        },
    ]  # fmt: skip
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    chat = [
        {"role": "system", "content": "x\ny"},
        {"role": "user", "content": "a\nb\nc"},
        {
            "role": "assistant", "content": "", "reasoning_content": "hm",
            "tool_calls": [{"id": "t", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "t", "content": "Error: no"},
        {"role": "user", "content": "d"},
    ]  # fmt: skip
    system = [{"type": "text", "text": "x", **marked}, {"type": "text", "text": "y"}]
    async with serving(tokenizer, "one") as (server, _):
        counted = await server.client.post("/v1/messages/count_tokens", json={"system": system, "messages": messages})
        tokenized = await server.client.post("/tokenize", json={"messages": chat})
        assert counted.json() == {"input_tokens": tokenized.json()["count"]}
        without = await server.client.post(
            "/v1/messages/count_tokens", json={"messages": QUESTION, "thinking": {"type": "disabled"}}
        )
        tokenized = await server.client.post(
            "/tokenize", json={"messages": QUESTION, "chat_template_kwargs": {"enable_thinking": False}}
        )
        assert without.json() == {"input_tokens": tokenized.json()["count"]}


async def test_an_answer_that_the_client_has_begun_goes_on(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, " in Rome.") as (server, client):
        begun: list[Any] = [*QUESTION, {"role": "assistant", "content": "It rains"}]
        answer = await client.messages.create(**MESSAGE_FIELDS | {"messages": begun})
        (block,) = answer.content
        assert block.type == "text"
        assert block.text == " in Rome."
        prompt = await server.client.post("/tokenize", json={"messages": begun, "continue_final_message": True})
        counted = await client.messages.count_tokens(model="scripted", messages=begun)
        assert _prompt(answer) == counted.input_tokens == prompt.json()["count"]
        async with client.messages.stream(**MESSAGE_FIELDS | {"messages": begun}) as stream:
            assert await stream.get_final_text() == " in Rome."


async def test_reasons_to_stop(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one two three four") as (_, client):
        cut = await client.messages.create(**MESSAGE_FIELDS | {"max_tokens": 2})
        assert (cut.stop_reason, cut.stop_sequence) == ("max_tokens", None)
        stopped = await client.messages.create(**MESSAGE_FIELDS, stop_sequences=["four", "three"])
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "three")
        stream = await client.messages.create(**MESSAGE_FIELDS, stop_sequences=["three"], stream=True)
        (delta,) = [event async for event in stream if event.type == "message_delta"]
        assert (delta.delta.stop_reason, delta.delta.stop_sequence) == ("stop_sequence", "three")
        assert delta.usage.output_tokens == stopped.usage.output_tokens


async def test_more_tokens_than_the_context_leaves(tokenizer: Tokenizer) -> None:
    """Clients ask for as much as any model gives; a prompt that leaves nothing is refused."""
    async with serving(tokenizer, "", max_model_len=64) as (server, client):
        server.runner.tokens = tokenizer.encode("one two three four")
        answer = await client.messages.create(**MESSAGE_FIELDS | {"max_tokens": 8_000})
        assert answer.stop_reason == "model_context_window_exceeded"
        assert answer.usage.input_tokens + answer.usage.output_tokens == 64
        with pytest.raises(anthropic.BadRequestError, match="context"):
            await client.messages.create(**MESSAGE_FIELDS | {"messages": [{"role": "user", "content": "word " * 64}]})


async def test_one_call_at_most(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, CALL % "Rome" + CALL % "Oslo") as (_, client):
        choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
        (block,) = (await client.messages.create(**MESSAGE_FIELDS, tools=[WEATHER], tool_choice=choice)).content
        assert block.type == "tool_use"
        assert block.input == {"city": "Rome"}
        (block,) = (
            await client.messages.create(**MESSAGE_FIELDS, tools=[WEATHER], tool_choice={"type": "none"})
        ).content
        assert block.type == "text"


HARMLESS = {
    "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"}, "max_tokens": 1025,
    "metadata": {"user_id": "me"}, "service_tier": "auto", "temperature": 0.5, "top_k": 5, "top_p": 0.9,
    "stop_sequences": [], "tools": [], "tool_choice": {"type": "auto"}, "system": "", "stream": False,
    "mcp_servers": [], "container": None, "cache_control": {"type": "ephemeral"}, "seed": 7,
    "context_management": {"edits": [
        {"type": "clear_thinking_20251015", "keep": "all"},
        {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}},
        {"type": "clear_thinking_20251015"},
    ]},
}  # fmt: skip


async def test_harmless_values_are_taken(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one") as (server, _):
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "some-2025-01-01"}
        response = await server.client.post("/v1/messages?beta=true", json=MESSAGE_FIELDS | HARMLESS, headers=headers)
        assert response.status_code == 200, response.text
        assert "x-paternoster-ignored" not in response.headers
        counted = await server.client.post(
            "/v1/messages/count_tokens",
            json={"messages": QUESTION, "context_management": {"edits": HARMLESS["context_management"]["edits"]}},
        )
        assert counted.status_code == 200, counted.text


async def test_the_client_raises_its_own_errors(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one", broken_steps=[1]) as (server, client):
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(**MESSAGE_FIELDS | {"model": "other"})
        with pytest.raises(anthropic.InternalServerError) as failed:
            await client.messages.create(**MESSAGE_FIELDS)
        assert failed.value.body["error"]["type"] == "api_error"  # type: ignore[index]
        server.state.drain()
        with pytest.raises(anthropic.ServiceUnavailableError) as busy:
            await client.messages.create(**MESSAGE_FIELDS)
        assert busy.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
        assert busy.value.response.headers["retry-after"] == "1"


async def test_a_failure_in_mid_stream_raises(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one two three four five", broken_steps=[3], paced=True) as (_, client):
        kinds: list[str] = []
        with pytest.raises(anthropic.APIStatusError, match="failed"):
            async for event in await client.messages.create(**MESSAGE_FIELDS, stream=True):
                kinds.append(event.type)
        assert kinds[:3] == ["message_start", "content_block_start", "content_block_delta"]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (StepFailed, "api_error"),
        (DeadlineExceeded, "timeout_error"),
        (EngineEnding, "overloaded_error"),
        (lambda: GrammarTooComplex("x"), "invalid_request_error"),
    ],
)
async def test_a_failure_has_one_type_in_a_stream_and_before_it(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, failure: Any, kind: str
) -> None:
    """Clients decide by it whether to send the request again."""
    monkeypatch.setitem(FAILURES, FinishReason.ERROR, failure)  # type: ignore[arg-type]
    async with serving(tokenizer, "one two three four five", broken_steps=[3, 4], paced=True) as (server, _):
        own = {"X-Request-Id": "mine"}
        streamed = await server.client.post("/v1/messages", json=MESSAGE_FIELDS | {"stream": True}, headers=own)
        *_, (name, last) = events(streamed.text)
        whole = await server.client.post("/v1/messages", json=MESSAGE_FIELDS, headers=own)
        assert (name, last) == ("error", whole.json())
        assert last["request_id"] == "mine"
        assert last["error"]["type"] == kind


async def test_a_client_that_leaves_ends_its_sequence(tokenizer: Tokenizer) -> None:
    async with (
        serving(tokenizer, "", paced=True) as (server, _),
        listening(server.state) as url,
        anthropic.AsyncAnthropic(base_url=url, api_key="x", max_retries=0) as client,
    ):
        server.runner.tokens = tokenizer.encode("one two three four")
        stream = await client.messages.create(**MESSAGE_FIELDS, stream=True)
        async for event in stream:
            if event.type == "content_block_delta":
                break
        await stream.close()
        assert await reasons_of_ends(server) == {"abort": 1}


async def test_a_missing_key_is_told_in_anthropics_form(tmp_path: Any) -> None:
    (tmp_path / "keys").write_text("k")
    app = create_app(ServerState(), KeyFiles(tmp_path / "keys"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
        refused = await client.post("/v1/messages", json=MESSAGE_FIELDS, headers={"x-api-key": "wrong"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
        loading = await client.post("/v1/messages", json=MESSAGE_FIELDS, headers={"x-api-key": "k"})
        assert (loading.status_code, loading.json()["error"]["type"]) == (503, "overloaded_error")
