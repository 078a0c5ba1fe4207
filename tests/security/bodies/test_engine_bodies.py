"""Whatever body is sent to whichever route of the engine: an answer or an OpenAI error, and an engine that lives."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.engine.server.official_types import official_types
from tests.security.strategies import bodies

from paternoster_engine.server.messages.requests import CountTokensRequest, MessagesRequest
from paternoster_engine.server.openai.requests import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from paternoster_engine.server.responses.requests import ResponsesRequest

MESSAGES = "/v1/messages"
ROUTES = {
    "/v1/chat/completions": bodies(
        ChatCompletionRequest, model="scripted", messages=[{"role": "user", "content": "up"}], max_tokens=3
    ),
    "/v1/completions": bodies(CompletionRequest, model="scripted", prompt="up", max_tokens=3),
    "/v1/responses": bodies(ResponsesRequest, model="scripted", input="up", max_output_tokens=3),
    MESSAGES: bodies(MessagesRequest, model="scripted", messages=[{"role": "user", "content": "up"}], max_tokens=3),
    f"{MESSAGES}/count_tokens": bodies(
        CountTokensRequest, model="scripted", messages=[{"role": "user", "content": "up"}]
    ),
    "/tokenize": bodies(TokenizeRequest, model="scripted", prompt="up"),
    "/detokenize": bodies(DetokenizeRequest, model="scripted", tokens=[1, 2]),
}
GENERATED = st.sampled_from(sorted(ROUTES)).flatmap(lambda path: st.tuples(st.just(path), ROUTES[path]))


@pytest.fixture(autouse=True)
def answers_are_of_official_types() -> Iterator[None]:
    with official_types():
        yield


@pytest.fixture
async def client(serve) -> AsyncIterator[httpx.AsyncClient]:  # type: ignore[no-untyped-def]
    async with serve() as server:
        yield server.client
        answer = await server.client.post("/v1/completions", json={"prompt": "up", "max_tokens": 3})
        assert answer.status_code == 200, "it has served all that, and serves on"
        stats = (await server.client.get("/stats")).json()
        assert (stats["running"], stats["waiting"], stats["kv_blocks_used"]) == (0, 0, 0)


def check(answer: httpx.Response) -> None:
    """OpenAI's form of an error, and never a fault of the server; 503 and 504 are a full queue and a deadline."""
    if answer.status_code != 200:
        assert answer.status_code < 500 or answer.status_code in (503, 504), answer.text
        error = answer.json()["error"]
        if not answer.request.url.path.startswith(MESSAGES):
            assert set(error) == {"message", "type", "param", "code"}
            assert error["code"] in (None, "model_not_found", "context_length_exceeded")
        assert len(error["message"]) < 5000
    elif answer.headers["content-type"].startswith("text/event-stream"):
        if "\nevent: " not in f"\n{answer.text}":
            assert answer.text.endswith("data: [DONE]\n\n")
        assert "InternalServerError" not in answer.text
    else:
        assert isinstance(answer.json(), dict)


@settings(suppress_health_check=list(HealthCheck), max_examples=400)
@given(sent=GENERATED)
async def test_no_body_is_a_fault_of_the_engine(client: httpx.AsyncClient, sent: tuple[str, bytes]) -> None:
    path, body = sent
    answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    event(f"{path} {answer.status_code}")
    check(answer)
    assert (await client.get("/health")).status_code == 200


@settings(suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from(sorted(ROUTES)), body=st.binary(max_size=100))
async def test_no_bytes_are_a_fault_of_the_engine(client: httpx.AsyncClient, path: str, body: bytes) -> None:
    answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    check(answer)


@pytest.mark.parametrize("path", sorted(ROUTES))
@pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
async def test_deep_bodies_are_answered_400(client: httpx.AsyncClient, path: str, bracket: bytes) -> None:
    for body in (bracket * 100_000, b'{"prompt": ' + bracket * 100_000):
        answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        check(answer)
