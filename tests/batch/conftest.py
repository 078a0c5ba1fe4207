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

import anthropic
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
    models: tuple[str, ...] = (MODEL,)
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
        model = request.match_info["model"]
        if model not in self.models:
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        return web.json_response({"id": model, "object": "model"})

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
        answer = answer_message if request.path == "/v1/messages" else answer_body
        return answer(body, request.headers["X-Request-Id"])


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


def answer_message(body: dict[str, Any], request_id: str) -> web.Response:
    """Answer in the form of Anthropic's API."""
    headers = {"X-Request-Id": request_id}
    if body.get("bad"):
        error = {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "bad"},
            "request_id": request_id,
        }
        return web.json_response(error, status=400, headers=headers)
    text = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    usage = {"input_tokens": 4, "cache_read_input_tokens": 1, "output_tokens": 2}
    document = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "usage": usage}
    document |= {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None}
    return web.json_response(document, headers=headers)


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
    _clients: list[openai.AsyncOpenAI | anthropic.AsyncAnthropic] = field(default_factory=list)

    def client(self, key: str = "none") -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)
        self._clients.append(client)
        return client

    def anthropic_client(self, key: str = "none") -> anthropic.AsyncAnthropic:
        client = anthropic.AsyncAnthropic(base_url=self.url, api_key=key, max_retries=0)
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


async def send_until_refused(service: Service, path: str, kind: str, first: bytes) -> tuple[bytes, bytes]:
    """Send a body of 100 MB that begins with ``first`` until an answer comes: its head and its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(service.url.rpartition(":")[2]))
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: 100000000\r\n\r\n"
    writer.write(head.encode() + first)
    answer, sent = asyncio.create_task(reader.read()), 0
    while not answer.done() and sent < 90_000_000:
        writer.write(b" " * 2**16)
        sent += 2**16
        await writer.drain()
        await asyncio.sleep(0)
    answered = (await answer).partition(b"\r\n\r\n")
    writer.close()
    assert sent < 90_000_000
    return answered[0], answered[2]
