"""What goes over the wire, byte for byte where clients depend on it."""

import json
from typing import Any

import httpx
import pytest

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}


def _frames(response: httpx.Response) -> list[Any]:
    """The data of each server-sent event; ``[DONE]`` as it is."""
    events = response.text.split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event[6:] if event == "data: [DONE]" else json.loads(event[6:]) for event in events]


async def test_chat_stream_frames(serve: Any) -> None:
    async with serve("one two", paced=True) as server:
        body = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
        response = await server.client.post("/v1/chat/completions", json=body)
        assert response.headers["content-type"].startswith("text/event-stream")
        *chunks, usage, done = _frames(response)
        assert done == "[DONE]"
        same = {(chunk["id"], chunk["object"], chunk["model"]) for chunk in [*chunks, usage]}
        assert same == {(chunks[0]["id"], "chat.completion.chunk", "scripted")}
        assert chunks[0]["id"].startswith("chatcmpl-")
        assert [chunk["choices"] for chunk in chunks] == [
            [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
            for delta, reason in [
                ({"role": "assistant", "content": ""}, None),
                ({"content": "one"}, None),
                ({"content": " two"}, None),
                ({"content": ""}, "stop"),
            ]
        ]
        assert not any("usage" in chunk for chunk in chunks)
        assert usage["choices"] == []
        assert usage["usage"]["completion_tokens"] == 3
        assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + 3


async def test_completion_stream_without_usage(serve: Any) -> None:
    async with serve("one two", paced=True) as server:
        response = await server.client.post("/v1/completions", json={"prompt": "Hi", "stream": True, "max_tokens": 2})
        *chunks, done = _frames(response)
        assert done == "[DONE]"
        assert [chunk["choices"][0] for chunk in chunks] == [
            {"index": 0, "text": "one", "logprobs": None, "finish_reason": None},
            {"index": 0, "text": " two", "logprobs": None, "finish_reason": "length"},
        ]
        assert not any("usage" in chunk for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_string_ends_text_and_work(serve: Any, stream: bool) -> None:
    async with serve("one two three four") as server:
        body = {"prompt": "Hi", "max_tokens": 100, "stop": "three", "stream": stream}
        response = await server.client.post("/v1/completions", json=body)
        if stream:
            choices = [frame["choices"][0] for frame in _frames(response)[:-1]]
            text, reason = "".join(choice["text"] for choice in choices), choices[-1]["finish_reason"]
        else:
            (choice,) = response.json()["choices"]
            text, reason = choice["text"], choice["finish_reason"]
        assert (text, reason) == ("one two ", "stop")
        finished = await server.loop.call_in_loop(lambda: dict(server.loop.engine.scheduler.counters.finished))
        assert finished == {"stop": 1}


async def test_each_prompt_of_a_list_is_a_choice(serve: Any) -> None:
    async with serve("one two three") as server:
        body = {"prompt": ["a", "b b b", "c"], "max_tokens": 2}
        whole = (await server.client.post("/v1/completions", json=body)).json()
        assert [(choice["index"], choice["text"]) for choice in whole["choices"]] == [(i, "one two") for i in range(3)]
        assert whole["usage"] == {
            "prompt_tokens": 5,
            "completion_tokens": 6,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        streamed = _frames(await server.client.post("/v1/completions", json=body | {"stream": True}))[:-1]
        texts = ["".join(f["choices"][0]["text"] for f in streamed if f["choices"][0]["index"] == i) for i in range(3)]
        assert texts == ["one two"] * 3


@pytest.mark.parametrize(("prompt", "tokens"), [([1, 2, 3], 3), ([[1, 2], [3]], 3), ("a b", 2)])
async def test_forms_of_a_prompt(serve: Any, prompt: Any, tokens: int) -> None:
    async with serve() as server:
        response = await server.client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
        assert response.json()["usage"]["prompt_tokens"] == tokens


async def test_null_is_absent_and_harmless_values_are_taken(serve: Any) -> None:
    harmless = {
        "n": 1, "logprobs": False, "tools": [], "tool_choice": "none", "response_format": {"type": "text"},
        "logit_bias": {}, "user": "me", "store": False, "metadata": {"a": "b"}, "parallel_tool_calls": True,
        "temperature": None,
        "stop": [f"stop {i}" for i in range(16)], "seed": None, "stream": None, "stream_options": None, "audio": None,
        "top_k": -1, "max_tokens": 1, "safety_identifier": "x", "prompt_cache_key": "y", "service_tier": "auto",
        "bad_words": [], "echo": False, "foo": None,
    }  # fmt: skip
    async with serve() as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | harmless)
        assert response.status_code == 200, response.text
        assert response.json()["choices"][0]["message"] == {"role": "assistant", "content": "one"}
        assert "x-paternoster-ignored" not in response.headers


async def test_a_chat_without_a_limit_takes_what_a_small_pool_leaves(serve: Any) -> None:
    async with serve("a " * 200, num_blocks=8) as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | {"ignore_eos": True})
        assert response.json()["usage"]["total_tokens"] == 8 * 8 + 1
        assert response.json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_token_has_a_status(serve: Any, stream: bool) -> None:
    async with serve(broken_steps=[1]) as server:
        response = await server.client.post("/v1/completions", json={"prompt": "Hi", "stream": stream})
        assert (response.status_code, response.json()["error"]["type"]) == (500, "InternalServerError")


async def test_a_failure_in_a_stream_is_a_frame(serve: Any) -> None:
    async with serve(broken_steps=[3], paced=True) as server:
        response = await server.client.post("/v1/completions", json={"prompt": "Hi", "stream": True})
        one, two, error, done = _frames(response)
        assert (one["choices"][0]["text"], two["choices"][0]["text"]) == ("one", " two")
        assert (error["error"]["type"], done) == ("InternalServerError", "[DONE]")


async def test_a_slow_reader_gets_larger_pieces_and_all_of_them(serve: Any) -> None:
    async with serve("one two three four five") as server:
        body = {"prompt": "Hi", "stream": True, "max_tokens": 100}
        *chunks, done = _frames(await server.client.post("/v1/completions", json=body))
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "one two three four five"
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
        assert done == "[DONE]"


async def test_request_id_is_echoed_or_made(serve: Any) -> None:
    async with serve() as server:
        echoed = await server.client.get("/nope", headers={"x-request-id": "abc"})
        assert echoed.headers["x-request-id"] == "abc"
        made = [(await server.client.get("/version")).headers["x-request-id"] for _ in range(2)]
        assert len(set(made)) == 2


async def test_tokenize_and_detokenize(serve: Any) -> None:
    async with serve() as server:
        post = server.client.post
        answer = (await post("/tokenize", json={"prompt": "one two", "return_token_strs": True})).json()
        assert (answer["count"], answer["max_model_len"], len(answer["tokens"])) == (2, 128, 2)
        assert answer["token_strs"] == ["one", "Ġtwo"]
        assert (await post("/detokenize", json={"tokens": answer["tokens"]})).json() == {"prompt": "one two"}
        chat = (await post("/tokenize", json={"messages": CHAT["messages"]})).json()
        text = (await post("/detokenize", json={"tokens": chat["tokens"]})).json()["prompt"]
        assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
        assert chat["token_strs"] is None
        longer = (await post("/tokenize", json={"prompt": "one " * 300})).json()
        assert longer["count"] > longer["max_model_len"]  # which is what a client that counts needs
        assert (await post("/tokenize", json={})).status_code == 400
        assert (await post("/detokenize", json={"tokens": [10**9]})).json()["error"]["param"] == "tokens"
