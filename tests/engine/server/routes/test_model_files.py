"""What a model's files say, as clients meet it: defaults of the publisher, and tokens without an embedding."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from tests.engine.model.repository.tiny_repository import VOCAB, tokenizer_json, write_repository

IMAGE = "<image_soft_token>"
DEFAULTS = {"top_k": 1, "repetition_penalty": 1.0, "top_p": 0.9, "max_new_tokens": 5}
CHAT = {"messages": [{"role": "user", "content": "a"}], "ignore_eos": True}


@pytest.fixture(scope="module")
def client(
    run_engine: Callable[..., AbstractContextManager[Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    files = {"tokenizer.json": tokenizer_json((VOCAB, IMAGE)), "generation_config.json": DEFAULTS}
    folder = write_repository(tmp_path_factory.mktemp("model") / "m", files)
    # In bfloat16 two tokens may be the likeliest.
    with (
        run_engine("--model", folder.as_uri(), "--dtype", "float32") as engine,
        httpx.Client(base_url=engine.url, timeout=60) as client,
    ):
        yield client


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_models_shows_them(client: httpx.Client) -> None:
    expected = {"top_k": 1, "repetition_penalty": 1.0, "top_p": 0.9, "max_tokens": 5}
    assert client.get("/v1/models").json()["data"][0]["default_parameters"] == expected
    assert client.get("/v1/models/m").json()["default_parameters"] == expected
    reported = client.get("/stats").json()["default_parameters"]
    assert {name: value for name, value in reported.items() if value is not None} == expected


def _texts(client: httpx.Client, **fields: Any) -> dict[str, set[str]]:
    """Texts of eight answers by each API."""
    chat = post(client, "/v1/chat/completions", **CHAT, n=8, max_tokens=6, **fields)
    text = post(client, "/v1/completions", prompt="a", n=8, max_tokens=6, ignore_eos=True, **fields)
    texts_by_route = {
        "chat": {choice["message"]["content"] for choice in chat["choices"]},
        "completion": {choice["text"] for choice in text["choices"]},
    }
    extra = {"ignore_eos": True, **fields}
    responses = [post(client, "/v1/responses", input="a", max_output_tokens=6, **extra) for _ in range(8)]
    texts_by_route["responses"] = {item["output"][0]["content"][0]["text"] for item in responses}
    messages = [post(client, "/v1/messages", **(CHAT | extra), max_tokens=6) for _ in range(8)]
    texts_by_route["messages"] = {item["content"][0]["text"] for item in messages}
    return texts_by_route


def test_every_api_uses_them_and_a_requests_own_fields_win(client: httpx.Client) -> None:
    assert {api: len(texts) for api, texts in _texts(client).items()} == dict.fromkeys(
        ("chat", "completion", "responses", "messages"), 1
    )
    greedy = _texts(client, temperature=0, top_k=0, top_p=1.0)
    assert _texts(client, top_k=None) == greedy
    assert all(len(texts) > 1 for texts in _texts(client, top_k=-1, top_p=1.0, temperature=2.0).values())


def test_an_answers_own_limit_wins_over_max_new_tokens(client: httpx.Client) -> None:
    def counted(path: str, field: str = "completion_tokens", **body: Any) -> int:
        count: int = post(client, path, **body)["usage"][field]
        return count

    assert counted("/v1/chat/completions", **CHAT) == 5
    assert counted("/v1/chat/completions", **CHAT, max_tokens=9) == 9
    assert counted("/v1/chat/completions", **CHAT, logprobs=True, top_logprobs=20) == 5
    assert counted("/v1/responses", "output_tokens", input="a", ignore_eos=True) == 5
    # The limit of a completion has a default of the API.
    assert counted("/v1/completions", prompt="a", ignore_eos=True) == 16


def test_a_response_tells_what_it_was_sampled_with(client: httpx.Client) -> None:
    response = post(client, "/v1/responses", input="a")
    assert (response["top_p"], response["temperature"], response["max_output_tokens"]) == (0.9, 1.0, None)
    assert post(client, "/v1/responses", input="a", top_p=0.5)["top_p"] == 0.5


def test_beams_are_no_samples(client: httpx.Client) -> None:
    """Fields of sampling are refused beside beams; a publisher's are not meant for them."""
    found = post(client, "/v1/completions", prompt="a", n=2, use_beam_search=True, max_tokens=4)
    assert len(found["choices"]) == 2


def test_a_token_without_an_embedding_is_plain_text(client: httpx.Client) -> None:
    tokens = post(client, "/tokenize", prompt=f"x{IMAGE}y")["tokens"]
    assert max(tokens) < VOCAB
    assert len(tokens) == len(f"x{IMAGE}y")
    assert post(client, "/detokenize", tokens=tokens)["prompt"] == f"x{IMAGE}y"
    assert post(client, "/v1/completions", prompt=IMAGE, max_tokens=2)["usage"]["prompt_tokens"] == len(IMAGE)
    messages = [{"role": "user", "content": IMAGE}]
    assert post(client, "/v1/chat/completions", messages=messages)["choices"]
    grammar = {"structured_outputs": {"regex": f"({IMAGE}){{2}}"}}
    found = post(client, "/v1/completions", prompt="a", max_tokens=2 * len(IMAGE), **grammar)
    assert found["choices"][0]["text"] == IMAGE * 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": [1, VOCAB]}),
        ("/v1/completions", {"prompt": "a", "logit_bias": {str(VOCAB): 100}}),
        ("/v1/completions", {"prompt": "a", "stop_token_ids": [VOCAB]}),
        ("/v1/chat/completions", {**CHAT, "logit_bias": {str(VOCAB): 100}}),
        ("/detokenize", {"tokens": [VOCAB]}),
    ],
)
def test_its_id_is_refused(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert f"token id {VOCAB} must be below {VOCAB}" in answer.text
