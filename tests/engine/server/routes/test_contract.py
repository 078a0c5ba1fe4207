"""The real ``openai`` client against a real engine process."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from paternoster_contract.cli.command import main
from paternoster_contract.labels import ADMIN_KEY_ENV

MODEL = "smollm2"
ADMIN = {"authorization": "Bearer admin-key"}
PROMPT: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of Japan?"}]


@pytest.fixture(scope="module")
def engine(run_engine: Any, exact: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One real engine for all tests here."""
    # A seed's tokens may not depend on how many are drawn. Answers of 8,000 tokens, which are cut, need room.
    settings = ("--max-num-seqs", "8", "--served-model-name", MODEL, *exact)
    settings += ("--kv-cache-memory", str(2**29))
    keys = tmp_path_factory.mktemp("keys") / "admin"
    keys.write_text("admin-key\n")
    with run_engine(*settings, "--admin-keys", str(keys)) as running:
        yield running


@pytest.fixture
def client(engine: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def async_client(engine: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)


def _error(raised: pytest.ExceptionInfo[openai.APIStatusError]) -> dict[str, Any]:
    return raised.value.response.json()["error"]


def _idle(stats: dict[str, Any]) -> bool:
    return bool(stats["running"] == stats["waiting"] == 0)


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object) == (MODEL, "model")
    assert model.max_model_len == 8192  # type: ignore[attr-defined]


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=PROMPT, temperature=0, max_tokens=32)
    (choice,) = answer.choices
    assert "Tokyo" in (choice.message.content or "")
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 1 < answer.usage.completion_tokens < 32


def test_beam_search(client: openai.OpenAI) -> None:
    request_fields: dict[str, Any] = {"model": MODEL, "messages": PROMPT, "temperature": 0, "max_tokens": 16}
    answer = client.chat.completions.create(**request_fields, n=2, extra_body={"use_beam_search": True})
    first, second = (choice.message.content or "" for choice in answer.choices)
    assert "Tokyo" in first
    assert first != second
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**request_fields, n=2, top_p=0.5, extra_body={"use_beam_search": True})
    assert _error(raised)["param"] == "top_p"


async def test_chat_stream_equals_the_whole(async_client: openai.AsyncOpenAI) -> None:
    request_fields: dict[str, Any] = {
        "model": MODEL,
        "messages": PROMPT,
        "temperature": 0.8,
        "seed": 11,
        "max_tokens": 24,
    }
    whole = await async_client.chat.completions.create(**request_fields)
    stream = await async_client.chat.completions.create(
        **request_fields, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content for chunk in chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == whole.choices[0].finish_reason
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    # The second finds what the first left in the prefix cache.
    same = {"prompt_tokens_details"}
    assert last.usage.model_dump(exclude=same) == whole.usage.model_dump(exclude=same)


def test_completion_takes_sixteen_tokens_by_default(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", temperature=0)
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 16
    streamed = client.completions.create(model=MODEL, prompt="Once upon a time", temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == answer.choices[0].text


def test_several_prompts(client: openai.OpenAI) -> None:
    prompts = ["Once upon a time", "The capital of France is"]
    alone = [client.completions.create(model=MODEL, prompt=p, temperature=0).choices[0].text for p in prompts]
    together = client.completions.create(model=MODEL, prompt=prompts, temperature=0)
    assert [choice.text for choice in together.choices] == alone


def test_stop_string(client: openai.OpenAI) -> None:
    request_fields: dict[str, Any] = {"model": MODEL, "prompt": "1, 2, 3, 4,", "temperature": 0, "max_tokens": 24}
    free = client.completions.create(**request_fields).choices[0].text
    word = free.split()[2]
    choice = client.completions.create(**request_fields, stop=[word]).choices[0]
    assert (choice.text, choice.finish_reason) == (free[: free.index(word)], "stop")
    streamed = list(client.completions.create(**request_fields, stop=[word], stream=True))
    assert "".join(chunk.choices[0].text for chunk in streamed) == choice.text
    assert streamed[-1].choices[0].finish_reason == "stop"


def test_max_completion_tokens_and_extensions(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=PROMPT,
        max_completion_tokens=40,
        extra_body={"ignore_eos": True, "top_k": 1, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 2},
    )
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (40, "length")


def test_wrong_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="gpt-9", messages=PROMPT)
    assert _error(raised)["param"] == "model"


def test_n_choices_of_one_prompt(client: openai.OpenAI) -> None:
    request_fields: dict[str, Any] = {"model": MODEL, "messages": PROMPT, "seed": 3, "max_tokens": 12}
    one = client.chat.completions.create(**request_fields, n=1)
    answer = client.chat.completions.create(**request_fields, n=3)
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts[0] == one.choices[0].message.content
    assert answer.usage is not None
    assert one.usage is not None
    assert answer.usage.prompt_tokens == one.usage.prompt_tokens
    assert client.chat.completions.create(**request_fields, n=3).choices == answer.choices


def test_too_long_states_both_lengths(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model=MODEL, prompt="word " * 9000, max_tokens=1)
    message = _error(raised)["message"]
    assert "8192" in message
    assert "9000" in message or "9001" in message


def test_unknown_field(client: openai.OpenAI) -> None:
    request_fields: dict[str, Any] = {"model": MODEL, "messages": PROMPT, "max_tokens": 1}
    answer = client.chat.completions.with_raw_response.create(**request_fields, extra_body={"tempature": 1})
    assert answer.headers["x-paternoster-ignored"] == "tempature"


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"seed": 3, "top_p": 0.9, "presence_penalty": 0.5}])
def test_logit_bias_decides_which_tokens_come(engine: Any, client: openai.OpenAI, sampling: dict[str, Any]) -> None:
    words = {word: _tokens(engine, word) for word in (" yes", " no")}
    assert all(len(tokens) == 1 for tokens in words.values())
    bias = {str(words[" yes"][0]): 100, str(words[" no"][0]): -100}
    request_fields: dict[str, Any] = {"model": MODEL, "max_tokens": 3, **sampling}
    biased = client.completions.create(prompt=["Is it?", "One two"], logit_bias=bias, **request_fields)
    assert [choice.text for choice in biased.choices] == [" yes yes yes"] * 2
    # What one asks for changes nothing for another in the same batch.
    assert client.completions.create(prompt="Is it?", **request_fields).choices[0].text != " yes yes yes"


def _tokens(engine: Any, text: str) -> list[int]:
    tokens: list[int] = httpx.post(f"{engine.url}/tokenize", json={"prompt": text}).json()["tokens"]
    return tokens


def test_cached_tokens_are_told(client: openai.OpenAI) -> None:
    prompt = "The lift never stops. " * 40
    usages = [client.completions.create(model=MODEL, prompt=prompt, max_tokens=1).usage for _ in range(2)]
    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages if usage and usage.prompt_tokens_details]
    assert cached[0] == 0
    assert usages[0] is not None
    assert usages[0].prompt_tokens - 64 <= (cached[1] or 0) < usages[0].prompt_tokens


def test_one_model(client: openai.OpenAI) -> None:
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/other")


def test_bad_json(engine: Any) -> None:
    response = httpx.post(
        f"{engine.url}/v1/chat/completions", content="{'a': 1}", headers={"content-type": "application/json"}
    )
    assert (response.status_code, response.json()["error"]["type"]) == (400, "BadRequestError")


async def test_leaving_a_stream_ends_the_request(
    engine: Any, async_client: openai.AsyncOpenAI, until_stats: Any
) -> None:
    before = await until_stats(engine.url, _idle)
    stream = await async_client.chat.completions.create(
        model=MODEL, messages=PROMPT, max_tokens=8000, stream=True, extra_body={"ignore_eos": True}
    )
    await anext(aiter(stream))
    await until_stats(engine.url, lambda stats: stats["running"] == 1)
    await stream.close()
    after = await until_stats(engine.url, _idle)
    assert after["generation_tokens_total"] - before["generation_tokens_total"] < 1000


async def test_leaving_a_plain_call_ends_the_request(engine: Any, until_stats: Any) -> None:
    before = await until_stats(engine.url, _idle)
    async with httpx.AsyncClient(base_url=engine.url) as http:
        body = {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True}
        call = asyncio.create_task(http.post("/v1/completions", json=body, timeout=60))
        await until_stats(engine.url, lambda stats: stats["running"] == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    after = await until_stats(engine.url, _idle)
    assert after["generation_tokens_total"] - before["generation_tokens_total"] < 1000


async def test_live_cap_acts_while_requests_run(
    engine: Any, async_client: openai.AsyncOpenAI, until_stats: Any
) -> None:
    async with httpx.AsyncClient(base_url=engine.admin_url, headers=ADMIN) as http:
        assert (await http.patch("/admin/config", json={"live_cap": 1})).json()["live_cap"] == 1
        request_fields: dict[str, Any] = {"model": MODEL, "max_tokens": 30, "extra_body": {"ignore_eos": True}}
        calls = [
            asyncio.create_task(async_client.completions.create(prompt=f"{i}", **request_fields)) for i in range(3)
        ]
        stats = await until_stats(engine.url, lambda stats: stats["waiting"] == 2)
        assert (stats["running"], stats["live_cap"]) == (1, 1)
        assert (await http.patch("/admin/config", json={"live_cap": 9})).status_code == 400
        assert (await http.patch("/admin/config", json={"live_cap": 8})).json()["live_cap"] == 8
        await until_stats(engine.url, lambda stats: stats["running"] >= 2)
        answers = await asyncio.gather(*calls)
        assert [answer.usage.completion_tokens for answer in answers] == [30, 30, 30]
        assert (await http.get("/stats")).json()["preemptions_total"] == 0


def test_admin_routes_have_a_port_and_a_key_of_their_own(engine: Any) -> None:
    for method, path in [
        ("GET", "/admin/config"),
        ("PATCH", "/admin/config"),
        ("POST", "/admin/drain"),
        ("DELETE", "/admin/drain"),
        ("POST", "/admin/reset-prefix-cache"),
    ]:
        assert httpx.request(method, f"{engine.admin_url}{path}").status_code == 401
        assert httpx.request(method, f"{engine.url}{path}", headers=ADMIN).status_code == 404
    assert httpx.get(f"{engine.admin_url}/admin/config", headers=ADMIN).json()["draining"] is False
    assert httpx.get(f"{engine.url}/ready").status_code == 200


def test_a_cap_is_found_over_the_admin_api(
    engine: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = ("--url", engine.url, "--admin-url", engine.admin_url)
    tune = ["bench", "tune", *urls, "--num-prompts", "4", "--max-prompt-tokens", "32", "--max-output-tokens", "4"]
    assert main(tune) == 2
    assert f"{engine.admin_url}/admin/config: HTTP 401" in capsys.readouterr().err
    monkeypatch.setenv(ADMIN_KEY_ENV, "admin-key")
    assert main(tune) == 0
    assert "live cap 8: the highest visited" in capsys.readouterr().out


async def test_nothing_leaks(engine: Any, until_stats: Any) -> None:
    stats = await until_stats(engine.url, _idle)
    assert stats["kv_blocks_used"] == 0
    assert stats["requests_total"] == stats["requests_finished_total"]
