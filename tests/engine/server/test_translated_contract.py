"""Both newer APIs on a real engine, with the official clients."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

MODEL = "smollm2"
QUESTION = "What is the capital of Japan?"


@pytest.fixture(scope="module")
def engine(run_engine: Any) -> Iterator[Any]:
    with run_engine("--served-model-name", MODEL, "--dtype", "float32") as running:
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
