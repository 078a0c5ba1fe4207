"""A real engine whose template has tools: calls, and both newer APIs, with the official clients."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import anthropic
import jsonschema_rs
import openai
import pytest
from pydantic import BaseModel
from tests.engine.server.tool_templates import QWEN3
from tests.engine.server.tools import test_auto_calls, test_required_calls

pytestmark = pytest.mark.slow

MODEL = "smollm2"
QUESTION = "What is the capital of Japan?"


@pytest.fixture(scope="module")
def engine(run_engine: Any, exact: Sequence[str]) -> Iterator[Any]:
    """With a template that has tools, which the model's own has not."""
    with run_engine(
        "--served-model-name", MODEL, *exact, "--chat-template", QWEN3, "--max-model-len", "1024"
    ) as running:
        yield running


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
        chat_fields: Any = {"model": MODEL, "max_tokens": 32, "messages": question, "extra_body": {"temperature": 0}}
        message = other.messages.create(**chat_fields)
        with other.messages.stream(**chat_fields) as stream:
            same = stream.get_final_message()
        counted = other.messages.count_tokens(model=MODEL, messages=question)
    content = chat.choices[0].message.content
    assert "Tokyo" in (content or "")
    assert response.output_text == text == content
    assert [block.text for block in message.content if block.type == "text"] == [content]
    assert [block.text for block in same.content if block.type == "text"] == [content]
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
        chat_fields: Any = {"model": MODEL, "max_tokens": 64, "extra_body": {"temperature": 0}}
        message = other.messages.create(
            **chat_fields,
            messages=[{"role": "user", "content": "Describe a city."}],
            output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
        )
        (block,) = message.content
        assert block.type == "text"
        assert json.loads(block.text)["city"] in ("Rome", "Oslo")
        message = other.messages.create(
            **chat_fields,
            messages=[{"role": "user", "content": "Hi"}],
            tools=[{"name": "weather", "input_schema": SCHEMA}],
            tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
            thinking={"type": "disabled"},
        )
        (use,) = message.content
        assert use.type == "tool_use"
        assert (message.stop_reason, use.input["city"] in ("Rome", "Oslo")) == ("tool_use", True)


def test_chats_own_choices_and_biases_act_in_both(engine: Any) -> None:
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        tokenized = client.post("/../tokenize", body={"prompt": "Oslo", "add_special_tokens": False}, cast_to=object)
        first: int = tokenized["tokens"][0]  # type: ignore[index]
        for extra, expected in (
            ({"structured_outputs": {"choice": ["Rome", "Oslo"]}, "logit_bias": {first: 100}}, "Oslo"),
            ({"structured_outputs": {"regex": "[0-9]{3}"}}, None),
        ):
            extra |= {"temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
            response = client.responses.create(model=MODEL, input=QUESTION, extra_body=extra)
            with anthropic.Anthropic(base_url=engine.url, api_key="none", max_retries=0) as other:
                question: Any = [{"role": "user", "content": QUESTION}]
                (block,) = other.messages.create(
                    model=MODEL, max_tokens=32, messages=question, extra_body=extra
                ).content
            assert block.type == "text"
            assert response.output_text == block.text
            assert block.text == expected or (expected is None and len(block.text) == 3 and block.text.isdigit())


def test_a_call_that_is_begun_is_of_its_schema(engine: Any) -> None:
    """At a temperature at which it would write anything."""
    schema = test_auto_calls.SCHEMA
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        function = {"name": "weather", "parameters": schema, "strict": True}
        shown: Any = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "<tool_call> it is."}]
        chat_fields: Any = {
            "model": MODEL, "messages": [*shown * 4, shown[0]], "max_tokens": 90,
            "top_p": 0.9, "tools": [{"type": "function", "function": function}],
        }  # fmt: skip
        validator = jsonschema_rs.Draft202012Validator(schema)
        reasons = []
        for seed in range(3):
            (choice,) = client.chat.completions.create(**chat_fields, temperature=1.0, seed=seed).choices
            reasons.append(choice.finish_reason)
            calls = choice.message.tool_calls or []
            for call in calls if choice.finish_reason == "tool_calls" else calls[:-1]:
                assert call.type == "function"
                assert validator.is_valid(json.loads(call.function.arguments))
        assert "tool_calls" in reasons


def test_it_calls_what_it_must(engine: Any) -> None:
    """The default model has no notion of tools: all that it writes follows from the grammar."""
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as client:
        chat_fields: dict[str, Any] = test_required_calls.CHAT | {"model": MODEL, "max_tokens": 200, "temperature": 1}
        chat_fields |= {
            "parallel_tool_calls": False,
            "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        }
        for seed in range(3):
            (choice,) = client.chat.completions.create(**chat_fields, tool_choice="required", seed=seed).choices
            (call,) = choice.message.tool_calls or []
            assert call.type == "function"
            allowed = {"weather": ({"city": "Rome"}, {"city": "Zürich"}), "now": ({},)}
            assert json.loads(call.function.arguments) in allowed[call.function.name]
            assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        named: Any = {"type": "function", "function": {"name": "weather"}}
        with client.chat.completions.stream(**chat_fields, tool_choice=named) as stream:
            (choice,) = stream.get_final_completion().choices
        (call,) = choice.message.tool_calls or []
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in ("Rome", "Zürich")
