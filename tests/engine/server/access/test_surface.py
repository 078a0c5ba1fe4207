"""The routes of both ports are those of the contract's table, and who may call them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.http.routes import ROUTES, Kind, Route
from paternoster_engine.server.app import create_admin_app, create_app
from paternoster_engine.server.middleware import InFlight
from paternoster_engine.server.state import ServerState

CLOSED = (Kind.API, Kind.NUMBERS, Kind.GATEWAY)


def _served(app: FastAPI) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}


def _declared(routes: Iterable[Route]) -> set[tuple[str, str]]:
    return {(each.method, each.path.replace(":path", "")) for each in routes}


def test_both_ports_serve_what_the_table_says() -> None:
    assert _served(create_app(ServerState())) == _declared(each for each in ROUTES if each.on_api_port)
    assert _served(create_admin_app(ServerState())) == _declared(each for each in ROUTES if each.on_admin_port)


def test_no_route_is_there_twice() -> None:
    assert len({(each.method, each.path) for each in ROUTES}) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda each: f"{each.method} {each.path}")
async def test_a_key_is_asked_for_where_the_table_says(route: Route, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("right\n")
    keys = KeyFiles(tmp_path / "keys")
    for app, closed in (
        (create_app(ServerState(), keys), CLOSED),
        (create_admin_app(ServerState(), keys), [Kind.ADMIN]),
    ):
        if not (route.on_api_port if closed is CLOSED else route.on_admin_port):
            continue
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://e") as client:
            answer = await client.request(route.method, route.path)
            assert (answer.status_code == 401) == (route.kind in closed)


async def test_pages_of_allowed_origins_may_call(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("right\n")
    keys, page = KeyFiles(tmp_path / "keys"), {"Origin": "http://localhost:3000"}
    preflight_headers = page | {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    for origins, allowed in (((), None), (("http://localhost:3000",), page["Origin"]), (("*",), "*")):
        app = create_app(ServerState(), keys, origins=origins)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://e") as client:
            before = await client.options("/v1/chat/completions", headers=preflight_headers)
            assert before.headers.get("access-control-allow-origin") == allowed
            assert before.status_code == (401 if allowed is None else 200)
            # A page can read why it was refused.
            answer = await client.post("/v1/chat/completions", headers=page, json={})
            assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (401, allowed)
            assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("route", [each for each in ROUTES if each.kind is Kind.API], ids=lambda each: each.path)
async def test_every_call_of_the_api_is_waited_for_by_a_drain(route: Route) -> None:
    state, counted = ServerState(), []

    async def app(*_: Any) -> None:
        counted.append(state.in_flight)

    await InFlight(app, state)({"type": "http", "path": route.path.replace("{model:path}", "a/b")}, None, None)  # type: ignore[arg-type]
    assert (counted, state.in_flight) == ([1], 0)


async def test_probes_and_numbers_are_no_calls_of_the_api() -> None:
    state, counted = ServerState(), []

    async def app(*_: Any) -> None:
        counted.append(state.in_flight)

    for path in ("/health", "/ready", "/stats", "/metrics", "/", "/v1x", "*", ""):
        await InFlight(app, state)({"type": "http", "path": path}, None, None)  # type: ignore[arg-type]
    assert set(counted) == {0}
