"""Answers of a real model are of the schema that was asked for; ``PATERNOSTER_SCHEMAS`` says how many are drawn."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import jsonschema_rs
import openai
import pytest
from pydantic import BaseModel, Field
from tests.engine.server.schemas import drawn
from tests.engine.server.tools.test_built_in_tool_template import CHAT

pytestmark = pytest.mark.slow

SCHEMAS = int(os.environ.get("PATERNOSTER_SCHEMAS", "24"))
MODEL = "smollm2"
MESSAGES: Any = [{"role": "user", "content": "Tell me of one city, as JSON."}]
EXPONENTIAL = "start: a0\n" + "".join(f"a{i}: a{i + 1} a{i + 1}\n" for i in range(40)) + 'a40: "x"'


class City(BaseModel):
    name: str = Field(max_length=12)
    continent: Literal["Africa", "Asia", "Europe"]
    population: int = Field(ge=0, le=99_999_999)
    capital: bool | None


@pytest.fixture(scope="module")
def engine(run_engine: Any) -> Iterator[Any]:
    with run_engine("--max-num-seqs", "16", "--served-model-name", MODEL) as running:
        yield running


@pytest.fixture
def client(engine: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)


def test_the_official_client_parses_a_model(client: openai.OpenAI) -> None:
    chat_fields: Any = {"model": MODEL, "messages": MESSAGES, "response_format": City, "temperature": 0}
    city = client.chat.completions.parse(**chat_fields).choices[0]
    assert city.finish_reason == "stop"
    assert isinstance(city.message.parsed, City)
    with client.chat.completions.stream(**chat_fields) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert streamed.message.parsed == city.message.parsed
    assert streamed.message.content == city.message.content


def test_choices_logprobs_and_stop_strings(client: openai.OpenAI) -> None:
    choices = {"structured_outputs": {"choice": ["Paris", "Rome", "Tokyo"]}}
    answer = client.completions.create(
        model=MODEL, prompt="The capital of Japan is", n=4, seed=1, logprobs=2, extra_body=choices
    )
    for choice in answer.choices:
        assert choice.text in ("Paris", "Rome", "Tokyo")
        assert choice.finish_reason == "stop"
        assert choice.logprobs is not None
        assert choice.logprobs.tokens is not None
        assert "".join(choice.logprobs.tokens).startswith(choice.text)
    stopped = client.completions.create(
        model=MODEL, prompt="Count:", stop="3", max_tokens=40, extra_body={"guided_regex": "1, 2, 3, 4, 5"}
    )
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("1, 2, ", "stop")
    cut = client.completions.create(model=MODEL, prompt="x", max_tokens=3, extra_body={"guided_regex": "[a-z ]{50}"})
    assert cut.choices[0].finish_reason == "length"


@pytest.mark.parametrize("schema", [{}, {"type": "integer"}, {"type": "number"}, {"type": "integer", "minimum": 0}])
def test_a_model_that_repeats_a_digit_comes_to_an_end(engine: Any, client: openai.OpenAI, schema: Any) -> None:
    body = {"prompt": "1", "add_special_tokens": False}
    (one,) = httpx.post(f"{engine.url}/tokenize", json=body).json()["tokens"]
    answer = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        max_tokens=200,
        logit_bias={str(one): 100},
        extra_body={"structured_outputs": {"json": schema}},
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert str(choice.message.content).startswith("1" * 40)
    json.loads(str(choice.message.content))


@pytest.mark.parametrize("strict", [True, False, None])
def test_an_object_has_the_names_of_its_schema_alone(client: openai.OpenAI, strict: bool | None) -> None:
    text = {"type": "string", "maxLength": 12}
    schema = {"type": "object", "properties": {"name": text, "country": text}, "required": ["name", "country"]}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "City", "schema": schema, "strict": strict}}
    for seed in range(4):
        answer = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=200, seed=seed, response_format=wanted
        )
        (choice,) = answer.choices
        assert choice.finish_reason == "stop"
        assert json.loads(str(choice.message.content)).keys() == {"name", "country"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_calls_are_of_their_schema_where_the_models_template_has_no_tools(engine: Any, choice: Any) -> None:
    body = {**CHAT, "tool_choice": choice, "max_tokens": 60, "temperature": 0}
    answer = httpx.post(f"{engine.url}/v1/chat/completions", json=body, timeout=60)
    (message,) = [each["message"] for each in answer.json()["choices"]]
    assert [call["function"]["name"] for call in message["tool_calls"]][:1] == ["weather"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["city"] in ("Tokyo", "Paris")


def test_a_grammar_that_explodes_ends_its_request_with_400(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot be followed any further"):
        client.completions.create(model=MODEL, prompt="x", max_tokens=50, extra_body={"guided_grammar": EXPONENTIAL})
    assert client.completions.create(model=MODEL, prompt="x", max_tokens=2).choices[0].text


async def test_answers_of_drawn_schemas_are_valid(engine: Any) -> None:
    """Whatever is drawn is either enforced or refused by name."""
    ended: Counter[str] = Counter()
    turns = asyncio.Semaphore(8)

    async def check_schema(http: httpx.AsyncClient, seed: int) -> None:
        schema = drawn(seed)
        wanted = {"type": "json_schema", "json_schema": {"name": "drawn", "schema": schema}}
        body = {"messages": MESSAGES, "response_format": wanted, "max_tokens": 64, "seed": seed, "temperature": 1.0}
        async with turns:
            response = await http.post("/v1/chat/completions", json=body)
        if response.status_code == 400:
            message = response.json()["error"]["message"]
            assert "cannot be enforced" in message or "cannot be followed" in message, (schema, message)
            ended["refused"] += 1
            return
        assert response.status_code == 200, (schema, response.text)
        (choice,) = response.json()["choices"]
        ended[choice["finish_reason"]] += 1
        if choice["finish_reason"] == "stop":
            answer = json.loads(choice["message"]["content"])
            validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
            assert validator.is_valid(answer), (schema, answer)

    async with httpx.AsyncClient(base_url=engine.url, timeout=None) as http:
        await asyncio.gather(*(check_schema(http, seed) for seed in range(SCHEMAS)))
    print(dict(ended))
    assert ended["stop"] > SCHEMAS / 2
    assert ended["refused"] < SCHEMAS / 8
