"""Both newer APIs on a real engine, with the official clients."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel
from tool_templates import QWEN3

MODEL = "smollm2"
QUESTION = "What is the capital of Japan?"


@pytest.fixture(scope="module")
def engine(run_engine: Any) -> Iterator[Any]:
    """With a template that tells of tools, which the model's own does not."""
    with run_engine("--served-model-name", MODEL, "--dtype", "float32", "--chat-template", QWEN3) as running:
        yield running


@pytest.mark.slow
def test_responses_and_messages_say_what_chat_says(engine: Any) -> None:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        question: Any = [{"role": "user", "content": QUESTION}]
        chat = client.chat.completions.create(model=MODEL, messages=question, temperature=0, max_tokens=32)
        response = client.responses.create(model=MODEL, input=QUESTION, temperature=0, max_output_tokens=32)
        streamed = client.responses.create(
            model=MODEL, input=QUESTION, temperature=0, max_output_tokens=32, stream=True
        )
        text = "".join(event.delta for event in streamed if event.type == "response.output_text.delta")
    with anthropic.Anthropic(base_url=engine.url, api_key="none", max_retries=0) as other:
        ask: Any = {"model": MODEL, "max_tokens": 32, "messages": question, "extra_body": {"temperature": 0}}
        message = other.messages.create(**ask)
        with other.messages.stream(**ask) as stream:
            same = stream.get_final_message()
        counted = other.messages.count_tokens(model=MODEL, messages=question)
    said = chat.choices[0].message.content
    assert "Tokyo" in (said or "")
    assert response.output_text == text == said
    assert [block.text for block in message.content if block.type == "text"] == [said]
    assert [block.text for block in same.content if block.type == "text"] == [said]
    assert chat.usage is not None
    assert response.usage is not None
    tokens = chat.usage.prompt_tokens
    assert response.usage.input_tokens == message.usage.input_tokens == counted.input_tokens == tokens
    assert response.usage.output_tokens == message.usage.output_tokens == chat.usage.completion_tokens


class City(BaseModel):
    name: str
    large: bool


SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.slow
def test_answers_that_must_be_of_a_form(engine: Any) -> None:
    """A schema and a tool that must be called hold what the model writes, in both APIs."""
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        parsed = client.responses.parse(
            model=MODEL, input="Describe a city.", text_format=City, temperature=0, max_output_tokens=64
        )
        assert isinstance(parsed.output_parsed, City)
        tool: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
        called = client.responses.create(
            model=MODEL,
            input="Hi",
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            reasoning={"effort": "none"},
            max_output_tokens=64,
        )
        (call,) = called.output
        assert call.type == "function_call"
        assert json.loads(call.arguments)["city"] in ("Rome", "Oslo")
    with anthropic.Anthropic(base_url=engine.url, api_key="none", max_retries=0) as other:
        ask: Any = {"model": MODEL, "max_tokens": 64, "extra_body": {"temperature": 0}}
        message = other.messages.create(
            **ask,
            messages=[{"role": "user", "content": "Describe a city."}],
            output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
        )
        (block,) = message.content
        assert block.type == "text"
        assert json.loads(block.text)["city"] in ("Rome", "Oslo")
        message = other.messages.create(
            **ask,
            messages=[{"role": "user", "content": "Hi"}],
            tools=[{"name": "weather", "input_schema": SCHEMA}],
            tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
            thinking={"type": "disabled"},
        )
        (use,) = message.content
        assert use.type == "tool_use"
        assert (message.stop_reason, use.input["city"] in ("Rome", "Oslo")) == ("tool_use", True)
