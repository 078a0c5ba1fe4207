"""An unforeseen error is answered like all others, and logged with its traceback."""

import logging
from typing import Any

import httpx
import pytest
from starlette.responses import StreamingResponse

from paternoster_engine.server.app import create_app
from paternoster_engine.server.messages import routes as messages_routes
from paternoster_engine.server.openai import routes as openai_routes

PAGE = "https://page.example"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


def _broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a secret")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
async def test_the_answer_is_like_all_others(
    serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    monkeypatch.setattr(messages_routes, "chat_of", _broken)
    monkeypatch.setattr(openai_routes, "ChatResponse", _broken)
    async with serve("one") as server:
        transport = httpx.ASGITransport(create_app(server.state, origins=[PAGE]))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            with caplog.at_level(logging.ERROR):
                response = await client.post(path, json=BODY, headers={"x-request-id": "r", "origin": PAGE})
    kind = "api_error" if path == "/v1/messages" else "InternalServerError"
    assert (response.status_code, response.json()["error"]["type"]) == (500, kind)
    assert response.json()["error"]["message"] == "Internal server error"
    assert ("type" in response.json()) is (path == "/v1/messages")
    assert response.headers["x-request-id"] == "r"
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "ZeroDivisionError: a secret" in caplog.text
    assert server.state.in_flight == 0


async def test_an_answer_that_has_begun_is_broken_off(serve: Any) -> None:
    async with serve("one") as server:
        app = create_app(server.state)

        @app.get("/begun")
        async def begun() -> Any:
            async def pieces() -> Any:
                yield "a"
                _broken()

            return StreamingResponse(pieces(), media_type="application/json")

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
            with pytest.raises(ZeroDivisionError):
                await client.get("/begun")
