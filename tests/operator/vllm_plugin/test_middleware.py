"""The route in the API server, on the real middleware with an engine core of the test's own."""

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.operator.vllm_plugin.stub_scheduler import StubRequest, StubScheduler

from paternoster_contract.http.headers import DIED, NOT_SERVING
from paternoster_vllm import middleware
from paternoster_vllm.engine_core import UTILITY, call_control
from paternoster_vllm.middleware import ADMIN_KEYS_ENV, API_KEYS_ENV, HEALTH, PATH, LimitsMiddleware

ADMIN = {"Authorization": "Bearer admin"}


class Client:
    """vLLM's client of its engine core: one call by name."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.calls: list[dict[str, int]] = []
        self.fault: Exception | None = None
        self.hangs = False

    async def call_utility_async(self, name: str, limits: dict[str, int]) -> Any:
        assert name == UTILITY
        self.calls.append(limits)
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault
        return call_control(self.core, limits)


class Server:
    """The middleware before an application that answers everything with 204."""

    def __init__(self) -> None:
        self.core = SimpleNamespace(scheduler=StubScheduler())
        self.client = Client(self.core)
        self.app = SimpleNamespace(state=SimpleNamespace(engine_client=SimpleNamespace(engine_core=self.client)))
        self.passed: list[str] = []
        self.asgi = LimitsMiddleware(self._application)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = self.app
        await self.asgi(scope, receive, send)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        self.passed.append(scope.get("path", scope["type"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def call(self, method: str, path: str = PATH, **kwargs: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self)
        async with httpx.AsyncClient(transport=transport, base_url="http://vllm") as client:
            return await client.request(method, path, **kwargs)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    (tmp_path / "operator").write_text("admin\n")
    monkeypatch.setenv(ADMIN_KEYS_ENV, str(tmp_path))
    monkeypatch.delenv(API_KEYS_ENV, raising=False)
    return Server()


async def test_a_core_without_the_plugin_serves_and_its_limits_cannot_be_moved(server: Server) -> None:
    """vLLM 0.32 answers so to a call of a method that its core does not have."""
    missing = f"'EngineCoreProc' object has no attribute '{UTILITY}'"
    server.client.fault = Exception(f"Call to {UTILITY} method failed: {missing}")
    for method in ("GET", "PATCH"):
        answer = await server.call(method, headers=ADMIN, content=b'{"live_cap": 3}')
        assert answer.status_code == 501
        assert missing in answer.json()["error"]["message"]
    assert (await server.call("GET", HEALTH)).status_code == 200


async def test_a_cap_is_set_and_read_back(server: Server) -> None:
    before = (await server.call("GET", headers=ADMIN)).json()
    answer = await server.call("PATCH", headers=ADMIN, json={"live_cap": 3, "token_budget": 9})
    after = (await server.call("GET", headers=ADMIN)).json()
    assert answer.status_code == 200
    assert (before["live_cap"], before["token_budget"]) == (8, 16)
    assert answer.json() == after
    assert (after["live_cap"], after["token_budget"], server.core.scheduler.max_num_active_reqs) == (3, 9, 3)
    assert server.passed == []


async def test_requests_that_would_wait_for_too_long_are_refused(server: Server) -> None:
    """Eight run and two wait of the four that may, as the queue admits one in half of a second."""
    release = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    server.asgi = LimitsMiddleware(application)
    await server.call("PATCH", headers=ADMIN, json={"max_queue_milliseconds": 2_250})
    scheduler, pace = server.core.scheduler, server.core._paternoster_control._pace
    stubs = [StubRequest(str(number)) for number in range(10)]
    scheduler.running, scheduler.waiting = stubs[:8], stubs[8:]
    now = time.monotonic()
    for step in range(101):
        pace.count_step(1, 2, now - 50 + step / 2)
    report = (await server.call("GET", headers=ADMIN)).json()
    assert (report["running"], report["waiting"], report["max_queue_milliseconds"]) == (8, 2, 2_250)
    assert not {"room_for_requests", "seconds_between_admissions"} & report.keys()
    posts = [asyncio.create_task(server.call("POST", "/v1/completions")) for _ in range(2)]
    await asyncio.sleep(0)
    refused = await server.call("POST", "/v1/chat/completions")
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "max_queue_milliseconds" in refused.json()["error"]["message"]
    assert (await server.call("GET", headers=ADMIN)).json()["requests_refused_total"] == 1
    assert (await server.call("GET", "/v1/completions")).status_code == 200, "it has no place, and needs none"
    release.set()
    assert {answer.status_code for answer in await asyncio.gather(*posts)} == {200}
    assert (await server.call("POST", "/v1/completions")).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer other"}, {"Authorization": "Basic admin"}])
async def test_without_the_key_the_core_is_not_called(server: Server, headers: dict[str, str]) -> None:
    for method in ("GET", "PATCH", "DELETE"):
        answer = await server.call(method, headers=headers, content=b"{" * 10**6)
        assert answer.status_code == 401
    assert server.client.calls == []


async def test_without_a_file_of_keys_no_key_opens(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADMIN_KEYS_ENV)
    assert (await server.call("GET", headers=ADMIN)).status_code == 401
    assert (await server.call("GET", headers={"Authorization": "Bearer "})).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{", 400, None),
        (b"x" * 10**6, 413, None),
        (b'{"cap": 1}', 422, "cap"),
        (b'{"live_cap": 0}', 422, "live_cap"),
        (b'{"live_cap": 9}', 422, "live_cap"),
        (b'{"live_cap": 4, "token_budget": 17}', 422, "token_budget"),
    ],
)
async def test_a_wrong_body_sets_nothing(server: Server, body: bytes, status: int, field: str | None) -> None:
    answer = await server.call("PATCH", headers=ADMIN, content=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, field)
    assert all(call == {} for call in server.client.calls)
    assert server.core.scheduler.max_num_active_reqs == 8


async def test_another_method_is_answered_with_those_there_are(server: Server) -> None:
    answer = await server.call("DELETE", headers=ADMIN)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PATCH")


async def test_an_engine_without_an_attribute_answers_which(server: Server) -> None:
    server.core.scheduler = SimpleNamespace(running=[], waiting=[])
    for method, body in (("GET", b""), ("PATCH", json.dumps({"live_cap": 1}).encode())):
        answer = await server.call(method, headers=ADMIN, content=body)
        assert answer.status_code == 501
        assert "max_num_active_reqs" in answer.json()["error"]["message"]


async def test_an_api_server_without_the_call_answers_so(server: Server) -> None:
    server.app.state = SimpleNamespace()
    answer = await server.call("GET", headers=ADMIN)
    assert answer.status_code == 501
    assert "call_utility_async" in answer.json()["error"]["message"]


async def test_a_core_that_hangs_or_fails_is_an_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "CALL_SECONDS", 0.01)
    server.client.hangs = True
    assert (await server.call("GET", headers=ADMIN)).status_code == 504
    server.client.hangs, server.client.fault = False, RuntimeError("x" * 10_000)
    answer = await server.call("GET", headers=ADMIN)
    assert answer.status_code == 503
    assert len(answer.text) < 1000


async def test_other_paths_pass_untouched(server: Server) -> None:
    assert (await server.call("POST", "/v1/completions", json={})).status_code == 204
    assert server.passed == ["/v1/completions"]


async def test_keys_of_the_api_close_all_paths_but_those_of_probes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api/gateway").write_text("client\n")
    monkeypatch.setenv(API_KEYS_ENV, str(tmp_path / "api"))
    refused = [await server.call("POST", path) for path in ("/v1/completions", "/tokenize", "//health", "/health/x")]
    assert [answer.status_code for answer in refused] == [401] * 4
    assert (await server.call("POST", "/v1/completions", headers=ADMIN)).status_code == 401
    assert (await server.call("POST", "/v1/completions", headers={"Authorization": "Bearer client"})).status_code == 204
    assert (await server.call("GET", "/health")).status_code == 204
    assert (await server.call("GET", headers={"Authorization": "Bearer client"})).status_code == 401, "not its route"


async def test_a_websocket_without_a_key_is_closed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_KEYS_ENV, str(tmp_path / "none"))
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await server({"type": "websocket", "path": "/v1/realtime", "headers": []}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert server.passed == []


async def test_the_self_test_runs_at_the_start(server: Server) -> None:
    async def send(_: Any) -> None:
        pass

    await server({"type": "lifespan"}, None, send)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.client.calls == [{}]
    assert server.core.scheduler.max_num_active_reqs == 8


async def test_health_needs_no_key_and_fails_where_the_core_does(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_KEYS_ENV, str(tmp_path))
    server.client.fault = RuntimeError("dead")
    refused = await server.call("GET", HEALTH)
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "the engine core failed: dead")
    server.client.fault = None
    assert (await server.call("GET", HEALTH)).status_code == 200
    assert server.passed == []


@pytest.mark.parametrize(
    ("before", "after", "status", "reason"),
    [(False, False, 500, None), (False, True, 503, DIED), (True, True, 503, "stopped")],
)
async def test_a_500_of_a_dead_engine_says_so(before: bool, after: bool, status: int, reason: str | None) -> None:
    server = Server()
    client = server.app.state.engine_client
    client.errored = before

    async def answer_500(scope: Any, receive: Any, send: Any) -> None:
        client.errored = after
        await send({"type": "http.response.start", "status": 500, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"EngineCore encountered an issue."})

    server.asgi = LimitsMiddleware(answer_500)
    answer = await server.call("POST", "/v1/completions", json={})
    assert (answer.status_code, answer.headers.get(NOT_SERVING)) == (status, reason)
    assert answer.text == "EngineCore encountered an issue."


@pytest.mark.parametrize(
    ("status", "headers", "after"),
    [(503, [], "1"), (503, [(b"Retry-After", b"7")], "7"), (429, [], None), (200, [], None)],
)
async def test_a_503_says_when_to_try_again(
    server: Server, status: int, headers: list[tuple[bytes, bytes]], after: str | None
) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    server.asgi = LimitsMiddleware(application)
    answer = await server.call("POST", "/v1/completions")
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, after)
