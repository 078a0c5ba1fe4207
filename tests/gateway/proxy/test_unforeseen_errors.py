"""An unforeseen error of the gateway is answered like all others, and logged with its traceback."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from paternoster_contract.http import paths
from paternoster_gateway import app as gateway
from paternoster_gateway.app import create_app

PAGE = "https://page.example"


@pytest.mark.parametrize(("path", "kind"), [("/v1/messages", "api_error"), ("/v1/completions", "InternalServerError")])
async def test_an_unforeseen_error_is_answered_in_openais_form(
    table: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str, kind: str
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(gateway, "admit_request", broken)
    app = create_app(str(table), origins=[PAGE])
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as client,
    ):
        while (await client.get(paths.READY)).status_code != 200:
            await asyncio.sleep(0.01)
        with caplog.at_level(logging.ERROR):
            response = await client.post(path, json={"model": "m"}, headers={"origin": PAGE})
    assert (response.status_code, response.json()["error"]["type"]) == (500, kind)
    assert response.json()["error"]["message"] == "Internal server error"
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "ZeroDivisionError: a secret" in caplog.text
