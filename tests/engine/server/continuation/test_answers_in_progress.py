"""The journal of a whole answer comes before it, and another engine goes on from what has come of it."""

import time
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tests.engine.server.continuation.test_continued_streams import (
    CALL,
    CASES,
    MESSAGES,
    THOUGHT,
    _script_answer,
    resume,
)
from tests.engine.server.continuation.test_continued_streams import server as server
from tests.engine.server.continuation.test_handed_over_answers import content, hand_over, whole_body
from tests.engine.server.scripted_server import Server

from paternoster_contract.stream_journal import (
    JOURNAL,
    PROGRESS,
    PROGRESS_MEDIA_TYPE,
    STREAM_ID,
    AnswerHead,
    decode_journal,
)
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.continuation import progress

ASKING = {STREAM_ID: CALL.encode(), PROGRESS: "1"}
STEP_SECONDS = 0.03
ANSWERS = CASES | {
    "log probabilities of a prompt": (
        "/v1/chat/completions", THOUGHT, MESSAGES | {"n": 2, "logprobs": True, "prompt_logprobs": 2},
    ),
    "echoes with log probabilities": (
        "/v1/completions", THOUGHT,
        {"prompt": ["It is", "Once upon"], "n": 2, "echo": True, "logprobs": 1, "max_tokens": 20, "stop": ["until"]},
    ),
}  # fmt: skip


@pytest.fixture
def slow_steps(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes several times as long as it takes until the next lines of a journal."""
    execute = server.runner.execute

    def execute_slowly(batch: Batch) -> StepResult:
        time.sleep(STEP_SECONDS)
        return execute(batch)

    monkeypatch.setattr(server.runner, "execute", execute_slowly)
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", STEP_SECONDS / 5)


def split_answer(response: httpx.Response) -> tuple[list[bytes], AnswerHead, bytes]:
    """Lines of the journal, head and body of an answer behind its journal."""
    assert (response.status_code, response.headers["content-type"]) == (200, PROGRESS_MEDIA_TYPE)
    assert response.headers[JOURNAL] == "fp_scripted"
    lines, rest = [], response.content
    while True:
        line, _, rest = rest.partition(b"\n")
        if line.startswith(b"{"):
            return lines, AnswerHead.decode(line), rest
        lines.append(line)


def as_response(head: AnswerHead, body: bytes) -> httpx.Response:
    return httpx.Response(head.status, headers=list(head.headers), content=body)


@pytest.mark.usefixtures("slow_steps")
@pytest.mark.parametrize("case", ANSWERS)
async def test_answer_goes_on_after_any_line_of_its_journal(server: Server, tokenizer: Tokenizer, case: str) -> None:
    path, text, body = ANSWERS[case]
    body = whole_body(body)
    _script_answer(server, tokenizer, text)
    undisturbed = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
    lines, head, answer = split_answer(await server.client.post(path, json=body, headers=ASKING))
    assert content(as_response(head, answer)) == content(undisturbed)
    assert len(lines) >= 3
    assert dict(head.headers)[b"content-length"] == str(len(answer)).encode()
    for cut in (1, len(lines) // 2, len(lines)):
        assert content(await resume(server, path, body, 0, lines[:cut])) == content(undisturbed)


@pytest.mark.usefixtures("slow_steps")
async def test_the_engine_that_goes_on_writes_what_its_gateway_lacks(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["three choices with log probabilities"]
    body = whole_body(body)
    _script_answer(server, tokenizer, text)
    lines, head, answer = split_answer(await server.client.post(path, json=body, headers=ASKING))
    first_lines = lines[: len(lines) // 2]
    other_lines, other_head, other_answer = split_answer(
        await resume(server, path, body, 0, first_lines, **{PROGRESS: "1"})
    )
    assert content(as_response(other_head, other_answer)) == content(as_response(head, answer))
    assert tokens_of(first_lines) + len(other_lines) <= tokens_of([*first_lines, *other_lines]) <= tokens_of(lines) + 3
    assert content(await resume(server, path, body, 0, [*first_lines, *other_lines])) == content(
        as_response(head, answer)
    )


def tokens_of(lines: list[bytes]) -> int:
    return sum(len(entry.tokens) for entry in decode_journal(b"\n".join(lines)))


@pytest.mark.usefixtures("slow_steps")
async def test_errors_and_streams_are_as_without_it(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["chat"]
    _script_answer(server, tokenizer, text)
    stream = await server.client.post(path, json=body, headers=ASKING)
    assert stream.headers["content-type"].startswith("text/event-stream")
    refused = await server.client.post(path, json=whole_body(body) | {"n": -1}, headers=ASKING)
    assert refused.status_code == 400
    for headers in ({STREAM_ID: CALL.encode()}, {PROGRESS: "1"}, {PROGRESS: "1", STREAM_ID: "x"}):
        plain = await server.client.post(path, json=whole_body(body), headers=headers)
        assert plain.headers["content-type"] == "application/json"


@pytest.mark.usefixtures("slow_steps")
async def test_a_call_that_is_handed_over_ends_with_its_whole_journal(server: Server, tokenizer: Tokenizer) -> None:
    path, text, body = CASES["chat"]
    body = whole_body(body)
    _script_answer(server, tokenizer, text)
    send_call = server.client.post

    async def post_asking(path: str, *, headers: Mapping[str, str], **given: Any) -> httpx.Response:
        response = await send_call(path, headers={**headers, PROGRESS: "1"}, **given)
        if response.headers.get("content-type") != PROGRESS_MEDIA_TYPE:
            return response
        lines, head, answer = split_answer(response)
        assert tokens_of(lines) <= tokens_of(answer.splitlines())
        return as_response(head, answer)

    undisturbed = await send_call(path, json=body, headers={STREAM_ID: CALL.encode()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.client, "post", post_asking)
        handed = await hand_over(server, path, body, 7)
    assert content(await resume(server, path, body, 0, handed.content.splitlines())) == content(undisturbed)
