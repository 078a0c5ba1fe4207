"""A batch service in this process, before a stub of the gateway that answers deterministically."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest
from aiohttp import web

from paternoster_batch.app import LIMITS, create_app
from paternoster_batch.gateway_client import GatewayClient
from paternoster_batch.runner import BatchRunner
from paternoster_batch.store import Store
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.supervise import supervise_task
from paternoster_http.listeners import open_listener
from paternoster_http.server import BackgroundServer

T = TypeVar("T")
MODEL = "tiny"
ENDPOINT = "/v1/chat/completions"
Refuse = Callable[[int], web.Response | None]


@dataclass
class StubGateway:
    """Answers each line by its body alone, as an engine does whose seeds are given."""

    url: str = ""
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    refuse: Refuse = lambda _: None
    """The answer to the request with a number from 0 in place of the usual one."""
    gate: asyncio.Event | None = None
    """Event that answers wait for."""
    most_at_once: int = 0
    _open: int = 0
    gone: int = 0
    """Requests whose client went away before its answer."""

    async def show_model(self, request: web.Request) -> web.Response:
        if request.match_info["model"] != MODEL:
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        return web.json_response({"id": MODEL, "object": "model"})

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.requests.append(request)
        self.bodies.append(body)
        number = len(self.bodies) - 1
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        try:
            if (refusal := self.refuse(number)) is not None:
                return refusal
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.gone += 1
            raise
        finally:
            self._open -= 1
        return answer_body(body, request.headers["X-Request-Id"])


def answer_body(body: dict[str, Any], request_id: str) -> web.Response:
    text = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    if body.get("bad"):
        return web.json_response({"error": {"message": "bad"}}, status=400, headers={"X-Request-Id": request_id})
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    document = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
    return web.json_response(document | {"usage": usage}, headers={"X-Request-Id": request_id})


@asynccontextmanager
async def serving_stub() -> AsyncIterator[StubGateway]:
    gateway = StubGateway()
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/v1/models/{model:.*}", gateway.show_model)
    app.router.add_post("/{path:.*}", gateway.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gateway.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield gateway
    finally:
        await runner.cleanup()


@dataclass
class Service:
    url: str
    store: Store
    gateway: StubGateway
    _clients: list[openai.AsyncOpenAI] = field(default_factory=list)

    def client(self, key: str = "none") -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)
        self._clients.append(client)
        return client

    async def close_clients(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def serving(
    folder: Path, gateway: StubGateway, api_keys: KeyFiles | None = None, *, roots: KeyFiles | None = None,
    max_in_flight: int = 4, ahead: float = 0,
) -> AsyncIterator[Service]:  # fmt: skip
    client = GatewayClient(gateway.url, roots)
    await client.open_session()

    def clock() -> float:
        return time.time() + ahead

    with Store(folder) as store, open_listener("127.0.0.1", 0) as listener:
        runner = BatchRunner(store, folder, client, max_in_flight, clock)
        server = BackgroundServer(create_app(store, runner, api_keys, clock), LIMITS)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await server.start(listener)
        running = supervise_task(runner.run, "run-batches")
        service = Service(url, store, gateway)
        try:
            yield service
        finally:
            await service.close_clients()
            await server.close()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()


@pytest.fixture
async def gateway() -> AsyncIterator[StubGateway]:
    async with serving_stub() as stub:
        yield stub


@pytest.fixture
async def service(tmp_path: Path, gateway: StubGateway) -> AsyncIterator[Service]:
    """Service without keys, so that all clients are one owner."""
    async with serving(tmp_path / "data", gateway) as started:
        yield started


def lines(count: int, **fields: Any) -> bytes:
    bodies = [
        {"model": MODEL, "messages": [{"role": "user", "content": str(number)}]} | fields for number in range(count)
    ]
    return b"".join(
        json.dumps({"custom_id": f"id-{number}", "method": "POST", "url": ENDPOINT, "body": body}).encode() + b"\n"
        for number, body in enumerate(bodies)
    )


async def submit(client: openai.AsyncOpenAI, content: bytes, window: Any = "24h") -> str:
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window=window)
    return batch.id


async def until(read: Callable[[], Awaitable[T]], holds: Callable[[T], object], seconds: float = 120) -> T:
    """The first of what is seen of which ``holds`` is true; a bound, not a measurement."""
    async with asyncio.timeout(seconds):
        while not holds(seen := await read()):
            await asyncio.sleep(0.02)
    return seen


async def ended(client: openai.AsyncOpenAI, batch: str) -> Any:
    states = ("completed", "failed", "expired", "cancelled")
    return await until(lambda: client.batches.retrieve(batch), lambda seen: seen.status in states)
