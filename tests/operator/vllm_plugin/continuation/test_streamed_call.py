"""Which calls are continued, and what the vLLM that goes on computes."""

import json
from typing import Any

import pytest

from paternoster_vllm.streamed_call import CHAT, COMPLETIONS, read_call

CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True}
TEXT_BODY = {"model": "m", "prompt": "a", "stream": True}


def read(path: str, **fields: Any) -> Any:
    body = CHAT_BODY if path == CHAT else TEXT_BODY
    return read_call(path, json.dumps(body | fields).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": False}, {"stream": None}, {"stream": 1}, {"n": 2}, {"n": True}, {"tools": [{"type": "function"}]},
        {"tool_choice": "auto"}, {"response_format": {"type": "json_object"}}, {"structured_outputs": {"regex": "a"}},
        {"logprobs": True}, {"top_logprobs": 2}, {"echo": True}, {"presence_penalty": 0.1}, {"frequency_penalty": 1},
        {"bad_words": ["a"]}, {"use_beam_search": True}, {"prompt_logprobs": 1}, {"kv_transfer_params": {}},
        {"thinking_token_budget": 3}, {"a_field_of_another_version": 1}, {"max_tokens": "4"}, {"max_tokens": 0},
        {"min_tokens": 1.5}, {"stream_options": 1},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
        {"messages": "a"}, {"messages": ["a"]}, {"messages": [{"role": "user", "content": 1}]},
    ],
)  # fmt: skip
def test_a_chat_that_tokens_do_not_continue_passes_untouched(fields: dict[str, Any]) -> None:
    assert read(CHAT, **fields) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": ["a"]}, {"prompt": [[1]]}, {"prompt": None}, {"prompt": [True]}, {"suffix": "a"}, {"logprobs": 0},
        {"echo": True}, {"prompt_embeds": "a"},
    ],
)  # fmt: skip
def test_a_completion_that_tokens_do_not_continue_passes_untouched(fields: dict[str, Any]) -> None:
    assert read(COMPLETIONS, **fields) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b'{"stream": true}', b"\xff"])
def test_a_body_that_is_none_passes_untouched(body: bytes) -> None:
    assert read_call(CHAT, body) is None


def test_values_without_effect_do_not_matter() -> None:
    fields = {
        "n": 1, "tools": None, "tool_choice": "none", "response_format": {"type": "text"}, "logprobs": False,
        "presence_penalty": 0.0, "frequency_penalty": 0, "echo": False, "bad_words": [],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant"}],
    }  # fmt: skip
    assert read(CHAT, **fields) is not None
    assert read(COMPLETIONS, prompt=[1, 2]) is not None


def test_limits_are_those_of_vllm() -> None:
    assert read(CHAT).max_tokens is None
    assert read(CHAT, max_tokens=3).max_tokens == 3
    assert read(CHAT, max_tokens=3, max_completion_tokens=4).max_tokens == 4
    assert read(COMPLETIONS).max_tokens == 16
    assert read(COMPLETIONS, max_tokens=None).max_tokens is None


def test_the_first_body_is_the_clients_with_one_field_more() -> None:
    call = read(COMPLETIONS, max_tokens=None, temperature=0.5)
    assert json.loads(call.build_first_body()) == {
        **TEXT_BODY, "max_tokens": None, "temperature": 0.5, "return_token_ids": True,
    }  # fmt: skip


def test_the_rest_is_asked_for_with_the_same_sampling() -> None:
    call = read(
        CHAT, temperature=0.5, seed=3, stop=["a"], stop_token_ids=[4], min_tokens=5, max_completion_tokens=9,
        chat_template_kwargs={"a": 1}, stream_options={"include_usage": True}, cache_salt="s", user="u",
    )  # fmt: skip
    assert json.loads(call.build_rest_body((1, 2), (3,), 8)) == {
        "model": "m", "prompt": [1, 2, 3], "temperature": 0.5, "seed": 3, "stop_token_ids": [4], "min_tokens": 4,
        "max_tokens": 8, "cache_salt": "s", "stream": True, "return_token_ids": True,
    }  # fmt: skip


def test_a_server_that_counts_always_counts_here() -> None:
    body = json.dumps(CHAT_BODY).encode()
    forced, plain = read_call(CHAT, body, forces_usage=True), read_call(CHAT, body)
    assert forced is not None
    assert plain is not None
    assert (forced.includes_usage, forced.continuous_usage) == (True, True)
    assert (plain.includes_usage, plain.continuous_usage) == (False, False)
