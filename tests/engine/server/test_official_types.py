"""What holds every answer of these tests to the official clients' types finds answers that are not of them."""

import json
from typing import Any

import pytest
from tests.engine.server.official_types import faults
from tests.engine.server.recorded_answers import Recorded

CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
ERROR = {"message": "no", "type": "BadRequestError", "param": None, "code": None}
TEXT = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": []}
START = {"type": "content_block_stop", "index": 0}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def whole(path: str, body: Any, status: int = 200) -> Recorded:
    return Recorded("POST", path, status, "application/json", json.dumps(body), ended=True)


def streamed(path: str, *events: Any, name: str | None = None, done: bool = False) -> Recorded:
    head = "" if name is None else f"event: {name}\n"
    text = "".join(f"{head}data: {json.dumps(event)}\n\n" for event in events)
    return Recorded("POST", path, 200, "text/event-stream", text + "data: [DONE]\n\n" * done, ended=True)


@pytest.mark.parametrize(
    "answer",
    [
        streamed(CHAT, CHUNK, done=True),
        streamed(CHAT, CHUNK, {"error": ERROR}),
        streamed(MESSAGES, START, name="content_block_stop"),
        whole("/v1/completions", TEXT),
        whole(CHAT, {"error": ERROR}, 400),
        whole(MESSAGES, {"type": "error", "error": {"type": "api_error", "message": "no"}}, 500),
        whole("/v1/score", {"anything": 1}),
        whole("/v1/models", {"object": "list", "data": []}),
    ],
)
def test_what_is_of_them(answer: Recorded) -> None:
    assert faults([answer]) == []


@pytest.mark.parametrize(
    "answer",
    [
        streamed(CHAT, CHUNK | {"created": "1"}),
        streamed(CHAT, CHUNK, {"error": ERROR | {"code": 500}}),
        streamed(RESPONSES, {"type": "response.created"}, name="response.created"),
        streamed(RESPONSES, {"type": "response.begun"}, name="response.begun"),
        streamed(RESPONSES, {"sequence_number": 1}),
        streamed(MESSAGES, START, name="content_block_start"),
        streamed(MESSAGES, START | {"index": None}, name="content_block_stop"),
        streamed(MESSAGES, {"error": ERROR}, name="error"),
        whole("/v1/completions", TEXT | {"object": "text"}),
        whole(CHAT, TEXT),
        whole(CHAT, {"error": ERROR | {"code": 400}}, 400),
        whole(MESSAGES, {"error": ERROR}, 400),
        whole("/v1/models", {"object": "list", "data": [{"id": "m"}]}),
        whole("/v1/unknown", {}),
        Recorded("POST", CHAT, 500, "text/plain", "Internal Server Error", ended=True),
        Recorded("POST", CHAT, 200, "text/event-stream", f"data: [DONE]\n\ndata: {json.dumps(CHUNK)}\n\n", ended=True),
    ],
)
def test_what_is_not(answer: Recorded) -> None:
    assert len(faults([answer])) == 1
