"""Loops with tools as agents' libraries run them: LangChain and Pydantic AI, on the real routes.

Each test imports its own library: every process of a run imports every file of tests, and one runs these.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import openai
import pytest
from tests.engine.server.scripted_server import Server, scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
THOUGHT = "<think>\nI look.\n</think>\n\n"
WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


@pytest.fixture
async def server(tokenizer: Tokenizer) -> AsyncIterator[Server]:
    async with scripted_server(tokenizer.with_template(QWEN3))(paced=True, **ROOM) as running:
        yield running


def _script_answer(server: Server, tokenizer: Tokenizer, text: str) -> None:
    server.runner.tokens = [*tokenizer.encode(text), tokenizer.eos_token_ids[0]]


@pytest.mark.parametrize("streams", [False, True])
async def test_langchain(server: Server, tokenizer: Tokenizer, streams: bool) -> None:
    from langchain_core.messages import AIMessageChunk, AnyMessage, HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def weather(city: str) -> str:
        """Weather of a city."""
        return f"rain in {city}"

    @tool
    def now() -> str:
        """The time."""
        return "noon"

    tools = {"weather": weather, "now": now}
    chat = ChatOpenAI(
        model="scripted", base_url="http://engine/v1", api_key="x", http_async_client=server.client, max_retries=0
    ).bind_tools(list(tools.values()))
    messages: list[AnyMessage] = [HumanMessage("Weather?")]
    for text in (f"{THOUGHT}{WEATHER}\n{NOW}", NOW, "It rains."):
        _script_answer(server, tokenizer, text)
        if streams:
            pieces = [piece async for piece in chat.astream(messages)]
            answer = pieces[0]
            for piece in pieces[1:]:
                answer += piece
            assert isinstance(answer, AIMessageChunk)
        else:
            answer = await chat.ainvoke(messages)
        messages.append(answer)
        for call in answer.tool_calls:
            messages.append(ToolMessage(tools[call["name"]].invoke(call["args"]), tool_call_id=call["id"]))
    assert [message.type.removesuffix("MessageChunk").lower() for message in messages] == [
        "human", "ai", "tool", "tool", "ai", "tool", "ai",
    ]  # fmt: skip
    assert [message.content for message in messages if isinstance(message, ToolMessage)] == [
        "rain in Zürich", "noon", "noon",
    ]  # fmt: skip
    assert messages[-1].content == "It rains."


@pytest.mark.parametrize("streams", [False, True])
async def test_pydantic_ai(server: Server, tokenizer: Tokenizer, streams: bool) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import AgentStreamEvent, ModelResponse, ThinkingPart
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = openai.AsyncOpenAI(base_url="http://engine/v1", api_key="x", http_client=server.client, max_retries=0)
    agent = Agent(OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client)))
    called = []

    @agent.tool_plain
    def weather(city: str) -> str:
        called.append(city)
        _script_answer(server, tokenizer, f"One moment.\n{NOW}")
        return json.dumps({"rain": True})

    @agent.tool_plain
    def now() -> str:
        called.append("now")
        _script_answer(server, tokenizer, "It rains.")
        return "noon"

    _script_answer(server, tokenizer, THOUGHT + WEATHER)
    seen: list[AgentStreamEvent] = []

    async def watch(_: Any, events: AsyncIterable[AgentStreamEvent]) -> None:
        """With a handler each answer is streamed."""
        seen.extend([event async for event in events])

    run = await agent.run("Weather?", event_stream_handler=watch if streams else None)
    assert bool(seen) is streams
    assert called == ["Zürich", "now"]
    assert run.output == "It rains."
    first = next(message for message in run.all_messages() if isinstance(message, ModelResponse))
    assert [part.content for part in first.parts if isinstance(part, ThinkingPart)] == ["I look."]
