"""An answer of which no byte was sent goes on at another engine from the tokens that it has, as the undisturbed one."""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from tests.engine.server.continuation.test_continued_streams import (
    CALL,
    CASES,
    GATEWAY,
    ROOM,
    _script_answer,
    begin,
    read_stream,
    resume,
    without_times,
)
from tests.engine.server.continuation.test_continued_streams import server as server
from tests.engine.server.scripted_server import WAIT, Server, scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_contract.http import paths
from paternoster_contract.http.headers import NOT_SERVING
from paternoster_contract.stream_journal import JOURNAL, RESUME, STREAM_ID, Resume, StreamId, decode_journal
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.model.tokenizer import Tokenizer

REQUESTED_CALL = {STREAM_ID: CALL.encode(), JOURNAL: "fp_scripted"}


def whole_body(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


def content(response: httpx.Response) -> Any:
    """Without when it ended and what the cache had."""
    assert response.status_code == 200, response.text
    text = re.sub(r'"(completed_at|cached_tokens|cache_read_input_tokens|input_tokens)": ?\d+', '"x":0', response.text)
    return json.loads(text)


def after_steps(server: Server, steps: int, act: Callable[[], Any]) -> Callable[[Batch], StepResult]:
    """A runner's ``execute`` that awaits ``act`` on the server's loop before one step."""
    execute, number, loop = server.runner.execute, itertools.count(), asyncio.get_running_loop()

    def execute_and_act(batch: Batch) -> StepResult:
        if next(number) == steps:
            asyncio.run_coroutine_threadsafe(act(), loop).result(WAIT)
        return execute(batch)

    return execute_and_act


async def hand_over(server: Server, path: str, body: Mapping[str, Any], steps: int) -> httpx.Response:
    """The answer of an engine that hands the call over after ``steps`` steps."""

    async def request_call() -> None:
        assert (await server.client.post(paths.HAND_OVER, headers=REQUESTED_CALL)).status_code == 204

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.runner, "execute", after_steps(server, steps, request_call))
        answer = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
    assert (answer.status_code, answer.headers[JOURNAL]) == (503, "fp_scripted")
    assert NOT_SERVING in answer.headers
    return answer


@pytest.mark.parametrize("case", CASES)
async def test_whole_answer_goes_on_after_any_step(server: Server, tokenizer: Tokenizer, case: str) -> None:
    path, text, body = CASES[case]
    body = whole_body(body)
    _script_answer(server, tokenizer, text)
    undisturbed = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
    most = 0
    for steps in (0, 1, 3, 5, 7):
        handed = await hand_over(server, path, body, steps)
        tokens = sum(len(entry.tokens) for entry in decode_journal(handed.content))
        assert tokens >= most
        most = tokens
        continued = await resume(server, path, body, 0, handed.content.splitlines())
        assert content(continued) == content(undisturbed)
    assert most >= 3


async def test_answer_handed_over_twice_is_the_undisturbed_one(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["three choices with log probabilities"]
    body = whole_body(body)
    _script_answer(server, tokenizer, text)
    undisturbed = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
    first = await hand_over(server, path, body, 3)

    async def request_call() -> None:
        assert (await server.client.post(paths.HAND_OVER, headers=REQUESTED_CALL)).status_code == 204

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.runner, "execute", after_steps(server, 3, request_call))
        second = await resume(server, path, body, 0, first.content.splitlines())
    counts = [sum(len(entry.tokens) for entry in decode_journal(each.content)) for each in (first, second)]
    assert 0 < counts[0] < counts[1]
    assert content(await resume(server, path, body, 0, second.content.splitlines())) == content(undisturbed)


async def test_stream_without_a_frame_goes_on_from_its_first(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["chat"]
    _script_answer(server, tokenizer, text)
    await begin(server, path, body)
    whole = await begin(server, path, body)
    handed = await hand_over(server, path, body, 0)
    continued = read_stream(await resume(server, path, body, 0, handed.content.splitlines()))
    assert without_times(continued.frames) == without_times(whole.frames)


async def test_stream_without_the_frame_of_its_prompt_begins_anew(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["echo with log probabilities"]
    _script_answer(server, tokenizer, text)
    whole = await begin(server, path, body)
    handed = await hand_over(server, path, body, 0)
    assert handed.content == b""
    assert without_times(read_stream(await resume(server, path, body, 0, [])).frames) == without_times(whole.frames)


async def test_engine_that_ends_hands_whole_answers_over(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["chat"]
    body = whole_body(body)
    _script_answer(server, tokenizer, text)
    undisturbed = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
    served = server.state.served

    async def end() -> None:
        served.loop._stopping = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.runner, "execute", after_steps(server, 4, end))
        handed = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
    assert (handed.status_code, handed.headers[JOURNAL]) == (503, "fp_scripted")
    async with scripted_server(tokenizer.with_template(QWEN3))(text, paced=True, tenants=GATEWAY, **ROOM) as other:
        continued = await resume(other, path, body, 0, handed.content.splitlines())
    assert decode_journal(handed.content)
    assert content(continued) == content(undisturbed)


async def test_only_calls_of_a_gateway_are_handed_over_to_engines_alike(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["chat"]
    _script_answer(server, tokenizer, text)
    found = []

    async def request_call() -> None:
        for headers in (
            REQUESTED_CALL | {STREAM_ID: StreamId("f" * 32, 1).encode()},
            REQUESTED_CALL | {JOURNAL: "fp_other"},
        ):
            found.append((await server.client.post(paths.HAND_OVER, headers=headers)).status_code)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.runner, "execute", after_steps(server, 2, request_call))
        answer = await server.client.post(path, json=whole_body(body), headers={STREAM_ID: CALL.encode()})
    assert (answer.status_code, found) == (200, [404, 412])
    assert (await server.client.get(paths.HEALTH)).headers[JOURNAL] == "fp_scripted"


async def test_hand_over_refuses_what_no_gateway_sends(server: Server) -> None:
    for headers in ({}, REQUESTED_CALL | {STREAM_ID: "x"}):
        refused = await server.client.post(paths.HAND_OVER, headers=headers)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, STREAM_ID)
    assert (await server.client.post(paths.HAND_OVER, headers={STREAM_ID: CALL.encode()})).status_code == 412


async def test_call_that_was_admitted_elsewhere_is_not_refused_although_it_has_no_token(tokenizer: Tokenizer) -> None:
    path, text, body = CASES["chat"]
    body = whole_body(body)
    serve = scripted_server(tokenizer.with_template(QWEN3))
    async with serve(text, paced=True, tenants=GATEWAY, tenant_tokens_per_second=1, **ROOM) as server:
        assert (await server.client.post(path, json=body)).status_code == 200
        assert (await server.client.post(path, json=body)).status_code == 429
        assert (
            await resume(server, path, body, 0, [], **{RESUME: Resume(0, 0, "fp_scripted").encode()})
        ).status_code == 200


@pytest.mark.parametrize("case", ["chat", "messages", "responses"])
async def test_whole_answer_whose_step_fails_goes_on_elsewhere(server: Server, tokenizer: Tokenizer, case: str) -> None:
    path, text, body = CASES[case]
    body = whole_body(body)
    _script_answer(server, tokenizer, text)
    undisturbed = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})

    async def fail() -> None:
        raise RuntimeError("a step fails")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.runner, "execute", after_steps(server, 4, fail))
        failed = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
        patch.setattr(server.runner, "execute", after_steps(server, 4, fail))
        unnamed = await server.client.post(path, json=body)
    assert (failed.status_code, failed.headers[JOURNAL]) == (500, "fp_scripted")
    assert decode_journal(failed.content)
    assert NOT_SERVING not in failed.headers
    assert unnamed.status_code == 500
    assert unnamed.json()["error"]
    continued = await resume(server, path, body, 0, failed.content.splitlines())
    assert content(continued) == content(undisturbed)
