"""Requests that are refused: which field and value the answer names, and with which status."""

from typing import Any

import pytest

from paternoster_contract.http.headers import NOT_SERVING
from paternoster_engine.server.bodies.reading_shares import ReadingShares

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}


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
        ("chat/completions", {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ("chat/completions", {"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ("chat/completions", {"truncate_prompt_tokens": 128}, "truncate_prompt_tokens"),
        ("chat/completions", {"truncate_prompt_tokens": 9, "max_tokens": 128}, "truncate_prompt_tokens"),
        ("completions", {"truncate_prompt_tokens": 113}, "truncate_prompt_tokens"),
        ("completions", {"truncate_prompt_tokens": 2.5}, "truncate_prompt_tokens"),
        ("completions", {"truncate_prompt_tokens": 5, "truncation_side": "middle"}, "truncation_side"),
        ("completions", {"allowed_token_ids": [10**9]}, "allowed_token_ids"),
        ("completions", {"logprobs": 1, "logprob_token_ids": [1]}, "logprob_token_ids"),
        ("completions", {"repetition_detection": {"max_pattern_size": 4}}, "repetition_detection"),
        ("completions", {"thinking_token_budget": -2}, "thinking_token_budget"),
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
        assert await server.loop.call_in_loop(lambda: server.loop.engine.scheduler.counters.requests) == 0


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


async def test_a_full_queue_answers_503_at_the_pace_of_its_tenant(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    paced: list[str] = []

    async def pace_refusal(_: ReadingShares, tenant: str) -> None:
        paced.append(tenant)

    monkeypatch.setattr(ReadingShares, "pace_refusal", pace_refusal)
    async with serve(max_queued_requests=2, max_num_seqs=1) as server:
        body = {"prompt": ["Hi"] * 2, "max_tokens": 1}
        calls = (server.client.post("/v1/completions", json=body) for _ in range(2))
        (response,) = await server.submitted_at_once(*calls)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert NOT_SERVING not in response.headers, "others it would take"
        assert response.json()["error"]["type"] == "Service Unavailable"
        assert paced == [""]


async def test_a_queue_that_is_too_slow_answers_503_with_the_time_to_come_again(serve: Any) -> None:
    async with serve(max_num_seqs=1) as server:
        changed = await server.admin.patch("/admin/config", json={"max_queue_milliseconds": 100})
        assert changed.json()["max_queue_milliseconds"] == 100
        assert (await server.client.get("/stats")).json()["max_queue_milliseconds"] == 100
        assert (await server.admin.patch("/admin/config", json={"max_queue_milliseconds": -1})).status_code == 400
        pace = server.state.served.scheduler.queue_wait
        pace.admit(1, pace._since + 7.0)
        body = {"prompt": ["Hi"] * 2, "max_tokens": 1}
        calls = (server.client.post("/v1/completions", json=body) for _ in range(2))
        (response,) = await server.submitted_at_once(*calls)
        assert response.status_code == 503
        assert 12 <= int(response.headers["retry-after"]) <= 14
        assert "behind the 1 requests that are waiting" in response.json()["error"]["message"]
        assert NOT_SERVING not in response.headers, "others it would take"


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
