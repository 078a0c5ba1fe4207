"""The engine's two ports have the limits, each for itself: what floods the one leaves the other alone."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Message
from tests.security.raw_http import GET, POST, answer_of, status_of

from paternoster_contract.access.identity import HEADER, Identity
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.app import create_admin_app, create_app
from paternoster_engine.server.state import ServerState
from paternoster_http.listeners import open_listener
from paternoster_http.open_requests import EXTENSION, OpenRequests
from paternoster_http.server import BackgroundServer


@pytest.fixture
async def ports() -> AsyncIterator[tuple[int, int]]:
    """Ports of an engine that still loads its model: API and admin."""
    state, limits = ServerState(), HttpLimits(max_connections=32)
    listeners = [open_listener("127.0.0.1", 0) for _ in range(2)]
    servers = [BackgroundServer(create_app(state), limits), BackgroundServer(create_admin_app(state), limits)]
    each = zip(servers, listeners, strict=True)
    running = [asyncio.create_task(server.serve([listener])) for server, listener in each]
    while not all(server.started for server in servers):
        await asyncio.sleep(0.01)
    api, admin = (listener.getsockname()[1] for listener in listeners)
    yield api, admin
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*running)


def send_raw(port: int, request: bytes) -> tuple[int, bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(request)
        return answer_of(client)


def get(port: int, path: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(GET % path)
        return status_of(client)


async def test_both_ports_refuse_a_body_of_400_megabytes_at_once(ports: tuple[int, int]) -> None:
    for port in ports:
        status, answer = await asyncio.to_thread(send_raw, port, POST + b"Content-Length: 400000000\r\n\r\n")
        assert status == 413
        assert b"RequestTooLargeError" in answer


async def test_a_newline_at_the_end_of_a_path_does_not_get_past_the_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("secret")
    listener = open_listener("127.0.0.1", 0)
    server = BackgroundServer(create_app(ServerState(), KeyFiles(file)), HttpLimits())
    running = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    port = listener.getsockname()[1]
    for path, status in {
        b"/tokenize": 401,
        b"/tokenize%0A": 400,
        b"/detokenize%0a": 400,
        b"/v1/models%7F": 400,
    }.items():
        assert await asyncio.to_thread(get, port, path) == status, path
    server.should_exit = True
    await running


async def test_a_flood_of_the_api_leaves_probes_and_the_admin_port_alone(ports: tuple[int, int]) -> None:
    api, admin = ports

    def flood() -> list[socket.socket]:
        clients = [socket.create_connection(("127.0.0.1", api), timeout=20) for _ in range(100)]
        for client in clients[:32]:
            client.sendall(POST + b"Content-Length: 1000\r\n\r\n{")
        return clients

    clients = await asyncio.to_thread(flood)
    try:
        for _ in range(5):
            assert await asyncio.to_thread(get, admin, b"/health") == 200
            assert await asyncio.to_thread(get, api, b"/health") == 200
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize(("key", "believed", "party"), [
    ("secret", True, ("tenants", "acme")), ("secret", False, ("", "a")), ("wrong", True, ("", "a")),
])  # fmt: skip
async def test_an_identity_counts_where_the_key_is_the_gateways(
    tmp_path: Path, key: str, believed: bool, party: tuple[str, str]
) -> None:
    file = tmp_path / "keys"
    file.write_text("secret")
    app = create_app(ServerState(), KeyFiles(file), TenantRules(believes_header=believed))
    request = OpenRequests(10, 10).add_request("a", lambda *_: None)
    headers = {HEADER: Identity(tenant="acme").encode(), "Authorization": f"Bearer {key}"}
    scope = {
        "type": "http", "method": "GET", "path": "/v1/models", "query_string": b"", "http_version": "1.1",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "extensions": {EXTENSION: request},
    }  # fmt: skip
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert sent[0]["status"] == (401 if key == "wrong" else 503), "no model is loaded"
    assert request.party == party


@pytest.mark.parametrize(("request_line", "hosts", "status"), [
    (b"GET /health HTTP/1.1", 0, 400), (b"GET /health HTTP/1.1", 1, 200), (b"GET /health HTTP/1.1", 2, 400),
    (b"GET /health HTTP/1.0", 0, 200), (b"GET /health HTTP/1.0", 2, 400), (b"GET /v1/models HTTP/1.1", 2, 400),
])  # fmt: skip
async def test_a_request_has_one_host(ports: tuple[int, int], request_line: bytes, hosts: int, status: int) -> None:
    lines = (request_line, *[b"Host: x"] * hosts, b"Connection: close", b"", b"")
    for port in ports:
        got, answer = await asyncio.to_thread(send_raw, port, b"\r\n".join(lines))
        assert got == status
        assert (b"Host headers" in answer) == (status == 400)


async def test_what_describes_the_routes_needs_a_key_where_they_do(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("secret")
    for app in (create_app(ServerState(), KeyFiles(file)), create_admin_app(ServerState(), KeyFiles(file))):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
            for path in ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect"):
                assert (await client.get(path)).status_code == 401, path
                assert (await client.get(path, headers={"X-Api-Key": "secret"})).status_code == 200, path
