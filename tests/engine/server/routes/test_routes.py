"""What goes over the wire, byte for byte where clients depend on it."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from paternoster_contract.http.headers import NOT_SERVING

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
        finished = await server.loop.call(lambda: dict(server.loop.engine.scheduler.counters.finished))
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


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        ("chat/completions", {"n": 0}, "n"),
        ("chat/completions", {"n": 129}, "n"),
        ("chat/completions", {"priority": 1}, "priority"),
        ("chat/completions", {"priority": 1.5}, "priority"),
        ("chat/completions", {"deadline_ms": 0}, "deadline_ms"),
        ("chat/completions", {"user": "x" * 257}, "user"),
        ("chat/completions", {"stop": ["x"] * 17}, "stop"),
        ("chat/completions", {"logprobs": 1}, "logprobs"),
        ("chat/completions", {"top_logprobs": 1}, "top_logprobs"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat/completions", {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ("chat/completions", {"prompt_logprobs": 21}, "prompt_logprobs"),
        ("chat/completions", {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ("chat/completions", {"best_of": 2}, "best_of"),
        ("chat/completions", {"tools": [{"type": "function"}]}, "tools.0.function"),
        ("chat/completions", {"tools": [{"type": "code", "function": {"name": "f"}}]}, "tools.0.type"),
        ("chat/completions", {"tools": [{"type": "function", "function": {"name": ""}}]}, "tools.0.function.name"),
        ("chat/completions", {"tool_choice": "required"}, "tool_choice"),
        ("chat/completions", {"documents": [{"text": "x"}]}, "documents"),
        ("chat/completions", {"documents": ["x"]}, "documents.0"),
        ("chat/completions", {"chat_template_kwargs": []}, "chat_template_kwargs"),
        ("chat/completions", {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ("chat/completions", {"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs"),
        ("chat/completions", {"chat_template_kwargs": dict.fromkeys(map(str, range(65)), 1)}, "chat_template_kwargs"),
        ("chat/completions", {"chat_template": "x"}, "chat_template"),
        ("chat/completions", {"logit_bias": {"a": 5}}, "logit_bias"),
        ("chat/completions", {"logit_bias": {"-1": 5}}, "logit_bias"),
        ("chat/completions", {"logit_bias": {"1": 101}}, "logit_bias.1"),
        ("chat/completions", {"logit_bias": {"1": "5"}}, "logit_bias.1"),
        ("chat/completions", {"logit_bias": {str(10**9): 5}}, "logit_bias"),
        ("chat/completions", {"logit_bias": {str(i): 1 for i in range(301)}}, "logit_bias"),
        ("chat/completions", {"logit_bias": {"1": 1}, "use_beam_search": True, "n": 2}, "logit_bias"),
        ("chat/completions", {"bad_words": [""]}, "bad_words.0"),
        ("chat/completions", {"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        ("completions", {"allowed_token_ids": [10**9]}, "allowed_token_ids"),
        ("completions", {"logprobs": 1, "logprob_token_ids": [1]}, "logprob_token_ids"),
        ("completions", {"repetition_detection": {"max_pattern_size": 4}}, "repetition_detection"),
        ("completions", {"thinking_token_budget": 8}, "thinking_token_budget"),
        ("chat/completions", {"store": 1}, "store"),
        ("chat/completions", {"temperature": 3}, "temperature"),
        ("chat/completions", {"temperature": "1"}, "temperature"),
        ("chat/completions", {"top_p": -0.1}, "top_p"),
        ("chat/completions", {"top_p": 1.1}, "top_p"),
        ("chat/completions", {"seed": 2**63}, "seed"),
        ("chat/completions", {"frequency_penalty": 2.1}, "frequency_penalty"),
        ("chat/completions", {"stop": ""}, "stop"),
        ("chat/completions", {"repetition_penalty": 1e-46}, "repetition_penalty"),
        ("chat/completions", {"stop": [""]}, "stop.0"),
        ("chat/completions", {"stop": 7}, "stop"),
        ("chat/completions", {"messages": []}, "messages"),
        ("chat/completions", {"messages": [{"role": "robot", "content": ""}]}, "messages.0.role"),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages.0.content.0.type"),
        ("chat/completions", {"stream_options": {"include_usage": True}}, "stream_options"),
        ("completions", {"prompt": ""}, "prompt"),
        ("completions", {"prompt": []}, "prompt"),
        ("completions", {"prompt": [1, "a"]}, "prompt"),
        ("completions", {"prompt": [10**9]}, "prompt"),
        ("completions", {"max_tokens": 0}, "max_tokens"),
        ("completions", {"max_tokens": 0, "echo": True, "use_beam_search": True, "n": 2}, "max_tokens"),
        ("chat/completions", {"max_tokens": 0}, "max_tokens"),
        ("completions", {"echo": "yes"}, "echo"),
        ("completions", {"best_of": 129}, "best_of"),
        ("completions", {"best_of": 2, "n": 3}, "best_of"),
        ("completions", {"best_of": 2, "stream": True}, "best_of"),
        ("completions", {"logprobs": True}, "logprobs"),
        ("completions", {"logprobs": 21}, "logprobs"),
        ("completions", {"logprobs": -1}, "logprobs"),
        ("completions", {"suffix": "x"}, "suffix"),
    ],
)  # fmt: skip
async def test_what_is_refused_is_named(serve: Any, path: str, change: dict[str, Any], param: str) -> None:
    async with serve() as server:
        good = {"prompt": "Hi"} if path == "completions" else CHAT
        response = await server.client.post(f"/v1/{path}", json=good | change)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["type"]) == (400, None, "BadRequestError")
        assert error["param"] == param
        assert param in error["message"]
        assert await server.loop.call(lambda: server.loop.engine.scheduler.counters.requests) == 0


async def test_bodies_that_are_no_json(serve: Any) -> None:
    async with serve() as server:
        post = server.client.post
        bad = await post("/v1/completions", content="{nope", headers={"content-type": "application/json"})
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, None)
        assert "not valid JSON" in bad.json()["error"]["message"]
        text = await post("/v1/completions", content='{"prompt": "Hi"}', headers={"content-type": "text/plain"})
        assert text.status_code == 400
        assert "application/json" in text.json()["error"]["message"]


async def test_a_huge_refused_value_makes_a_small_answer(serve: Any) -> None:
    async with serve() as server:
        body = CHAT | {f"field{i}": "x" * 10_000 for i in range(200)} | {"temperature": "y" * 100_000}
        assert len((await server.client.post("/v1/chat/completions", json=body)).content) < 4000


async def test_too_long_states_both_lengths(serve: Any) -> None:
    async with serve() as server:
        response = await server.client.post("/v1/completions", json={"prompt": [1] * 100, "max_tokens": 50})
        message = response.json()["error"]["message"]
        assert response.status_code == 400
        assert all(number in message for number in ("128", "150", "100", "50"))


async def test_a_chat_without_a_limit_takes_what_a_small_pool_leaves(serve: Any) -> None:
    async with serve("a " * 200, num_blocks=8) as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | {"ignore_eos": True})
        assert response.json()["usage"]["total_tokens"] == 8 * 8 + 1
        assert response.json()["choices"][0]["finish_reason"] == "length"


async def test_wrong_model_and_wrong_path(serve: Any) -> None:
    async with serve() as server:
        response = await server.client.post("/v1/completions", json={"prompt": "Hi", "model": "other"})
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["param"]) == (404, "NotFoundError", "model")
        assert error["code"] == "model_not_found"
        assert "`other`" in error["message"]
        for path, status in (("/nope", 404), ("/v1/completions", 405)):
            refused = await server.client.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (status, None)


async def test_a_full_queue_answers_503(serve: Any) -> None:
    async with serve(max_queued_requests=2, max_num_seqs=1) as server:
        body = {"prompt": ["Hi"] * 2, "max_tokens": 1}
        calls = (server.client.post("/v1/completions", json=body) for _ in range(2))
        (response,) = await server.submitted_at_once(*calls)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert NOT_SERVING not in response.headers, "others it would take"
        assert response.json()["error"]["type"] == "Service Unavailable"


async def test_a_call_that_can_never_wait_is_no_reason_to_try_again(serve: Any) -> None:
    async with serve(max_queued_requests=4) as server:
        for change, param in (({"prompt": ["Hi"] * 5}, "prompt"), ({"prompt": ["Hi"] * 2, "n": 3}, "n")):
            response = await server.client.post("/v1/completions", json=change)
            error = response.json()["error"]
            assert (response.status_code, error["param"]) == (400, param)
            assert "at most 4" in error["message"]
        four = await server.client.post("/v1/completions", json={"prompt": ["Hi"] * 2, "n": 2, "max_tokens": 1})
        assert four.status_code == 200
    async with serve(max_queued_per_tenant=2) as server:
        response = await server.client.post("/v1/chat/completions", json=CHAT | {"n": 3})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "n")


async def test_nothing_but_probes_while_loading(serve: Any) -> None:
    async with serve(loaded=False) as server:
        get, post = server.client.get, server.client.post
        assert (await get("/health")).status_code == 200
        assert (await get("/ready")).status_code == 503
        assert (await get("/metrics")).status_code == 200
        answers = [
            await post("/v1/chat/completions", json=CHAT), await post("/v1/completions", json={"prompt": "Hi"}),
            await post("/tokenize", json={"prompt": "Hi"}), await get("/v1/models"), await get("/stats"),
            await server.admin.get("/admin/config"), await server.admin.post("/admin/drain"),
            await server.admin.delete("/admin/drain"), await server.admin.get("/stats"),
        ]  # fmt: skip
        assert {answer.status_code for answer in answers} == {503}
        assert all("retry-after" in answer.headers for answer in answers)
        assert {answer.headers.get(NOT_SERVING) for answer in answers} == {"loading"}


async def test_draining_refuses_the_new_and_finishes_the_old(serve: Any) -> None:
    async with serve("one two") as server:
        assert (await server.client.get("/ready")).status_code == 200
        server.runner.gate.clear()
        old = asyncio.create_task(server.client.post("/v1/completions", json={"prompt": "Hi"}))
        await asyncio.to_thread(server.runner.entered.wait)
        assert (await server.admin.post("/admin/drain")).json()["draining"] is True
        assert (await server.client.get("/ready")).status_code == 503
        assert (await server.client.get("/health")).status_code == 200
        refused = await server.client.post("/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.headers[NOT_SERVING] == "draining"
        assert server.state.in_flight == 1
        server.runner.gate.set()
        assert (await old).json()["choices"][0]["text"] == "one two"
        await server.state.idle()
        assert (await server.client.get("/stats")).json()["state"] == "draining"


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


async def test_health_is_the_age_of_the_last_tick(serve: Any) -> None:
    now = [0.0]
    async with serve(clock=lambda: now[0]) as server:
        server.runner.gate.clear()
        pending = asyncio.create_task(server.client.post("/v1/completions", json={"prompt": "Hi"}))
        await asyncio.to_thread(server.runner.entered.wait)
        now[0] = 60.0
        assert (await server.client.get("/health")).status_code == 200
        now[0] = 61.0
        stalled = await server.client.get("/health")
        assert (stalled.status_code, stalled.json()["status"]) == (503, "stalled")
        server.runner.gate.set()
        await pending
        assert (await server.client.get("/health")).status_code == 200


async def test_request_id_is_echoed_or_made(serve: Any) -> None:
    async with serve() as server:
        echoed = await server.client.get("/nope", headers={"x-request-id": "abc"})
        assert echoed.headers["x-request-id"] == "abc"
        made = [(await server.client.get("/version")).headers["x-request-id"] for _ in range(2)]
        assert len(set(made)) == 2


async def test_live_cap(serve: Any) -> None:
    async with serve() as server:
        patch = server.admin.patch
        assert (await patch("/admin/config", json={"live_cap": 2})).json() == {
            "capacity": 4, "live_cap": 2, "max_batched_tokens": 64, "token_budget": 64, "draining": False,
        }  # fmt: skip
        refused = await patch("/admin/config", json={"live_cap": 5})
        too_high = refused.json()["error"]
        assert (refused.status_code, too_high["param"]) == (400, "live_cap")
        assert "5" in too_high["message"]
        assert "4" in too_high["message"]
        assert (await patch("/admin/config", json={"live_cap": 0})).status_code == 400
        assert (await patch("/admin/config", json={"cap": 1})).json()["error"]["param"] in ("live_cap", "cap")
        assert (await server.admin.get("/admin/config")).json()["live_cap"] == 2
        assert (await server.client.get("/stats")).json()["live_cap"] == 2


async def test_token_budget(serve: Any) -> None:
    async with serve() as server:
        patch = server.admin.patch
        told = (await patch("/admin/config", json={"token_budget": 16})).json()
        assert (told["token_budget"], told["live_cap"]) == (16, 4)
        refused = await patch("/admin/config", json={"live_cap": 2, "token_budget": 99999})
        both = refused.json()["error"]
        assert (refused.status_code, both["param"]) == (400, "token_budget")
        assert "99999" in both["message"]
        stats = (await server.client.get("/stats")).json()
        assert (stats["token_budget"], stats["live_cap"]) == (16, 4), "all of a patch or nothing"
        assert (await patch("/admin/config", json={"token_budget": 0})).status_code == 400
        assert (await patch("/admin/config", json={})).status_code == 400


async def test_reset_prefix_cache(serve: Any) -> None:
    async with serve() as server:
        await server.client.post("/v1/completions", json={"prompt": [7] * 17, "max_tokens": 1})
        assert (await server.client.get("/stats")).json()["kv_blocks_cached"] == 2
        assert (await server.admin.post("/admin/reset-prefix-cache")).json() == {"blocks_freed": 2}
        assert (await server.client.get("/stats")).json()["kv_blocks_cached"] == 0


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
        assert longer["count"] > longer["max_model_len"]  # which is what whoever counts wants to know
        assert (await post("/tokenize", json={})).status_code == 400
        assert (await post("/detokenize", json={"tokens": [10**9]})).json()["error"]["param"] == "tokens"
