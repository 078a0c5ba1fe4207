"""Fake engines with a given behaviour, and the gateway before them."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from fastapi import FastAPI
from multidict import CIMultiDictProxy

from paternoster_contract.http import paths
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_contract.stream_journal import JOURNAL
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.routing.decisions import Queue, ReturnResult, RoutedRequest, Send
from paternoster_http.server import LimitedServer

Behave = Callable[["FakeEngine", web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")
CORE_HEALTH = "/paternoster/health"


@dataclass
class FakeEngine:
    """An HTTP server whose answer to every POST is ``behave``, and which answers health probes unless it is hung."""

    name: str
    behave: Behave
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[CIMultiDictProxy[str]] = field(default_factory=list)
    """Headers of each request, in the order of :attr:`bodies`."""
    paths: list[str] = field(default_factory=list)
    gone: int = 0
    """Requests whose client went away before the answer was whole."""
    hung: bool = False
    """Whether ``/health`` stays without an answer."""
    probes: int = 0
    numerics: str = ""
    """What ``/health`` has as the header of journals."""
    core_health: int = 404
    """Status of :data:`CORE_HEALTH`, as vLLM's plugin has it."""
    chains: Behave | None = None
    """The answer to ``GET /text-chains``; None: the engine publishes none."""

    async def health(self, _: web.Request) -> web.StreamResponse:
        self.probes += 1
        while self.hung:
            await asyncio.sleep(0.02)
        return web.Response(headers={JOURNAL: self.numerics} if self.numerics else None)

    async def answer_core_health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=self.core_health)

    async def stream_chains(self, request: web.Request) -> web.StreamResponse:
        if self.chains is None:
            return web.Response(status=404)
        return await self.chains(self, request)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.headers.append(request.headers)
        self.paths.append(request.path)
        try:
            return await self.behave(self, request)
        except (asyncio.CancelledError, ConnectionError):
            self.gone += 1
            raise


@dataclass
class Door:
    """The gateway under test."""

    url: str
    table: Path

    def publish(self, *engines: FakeEngine, ready: bool = True, **fields: Any) -> None:
        """Make these engines the replicas of model m."""
        self.publish_models(m=route(*engines, ready=ready, **fields))

    def publish_models(self, **models: ModelRoute) -> None:
        """Make these all the models there are."""
        self.table.write_text(RoutingTable(models=models).model_dump_json())


def route(*engines: FakeEngine, ready: bool = True, **fields: Any) -> ModelRoute:
    """A route to these engines."""
    return ModelRoute(replicas=[Replica(name=each.name, url=each.url, ready=ready) for each in engines], **fields)


@asynccontextmanager
async def running(engine: FakeEngine) -> AsyncIterator[FakeEngine]:
    app = web.Application(client_max_size=2**26)
    app.router.add_get(paths.HEALTH, engine.health)
    app.router.add_get(CORE_HEALTH, engine.answer_core_health)
    app.router.add_get(paths.TEXT_CHAINS, engine.stream_chains)
    app.router.add_post("/{path:.*}", engine.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving(app: FastAPI, limits: HttpLimits | None = None) -> AsyncIterator[str]:
    """The URL of ``app``, which listens while in the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = LimitedServer(app, limits or HttpLimits())
        running = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await running


def replace(file: Path, *lines: str) -> None:
    """At once, as a kubelet does."""
    new = file.with_name(f".{file.name}")
    new.write_text("\n".join(lines))
    os.replace(new, file)


async def route_request(
    dispatcher: Dispatcher, request: RoutedRequest, admission: ClientAdmission
) -> Send | ReturnResult:
    """The decision for ``request``, once it is held no longer; raises :class:`GatewayError` for a rejection."""
    while isinstance(decision := dispatcher.decide(request, admission), Queue):
        await dispatcher.await_wake(request, decision.until)
    return decision


async def answer(engine: FakeEngine, _: web.Request) -> web.StreamResponse:
    """Say who answers."""
    return web.json_response({"from": engine.name}, headers={"X-Paternoster-Engine": engine.name})


async def stats(client: aiohttp.ClientSession, door: Door) -> dict[str, Any]:
    """The gateway's numbers by model."""
    async with client.get(f"{door.url}/stats") as response:
        models: dict[str, Any] = (await response.json())["models"]
        return models


async def until(read: Callable[[], Awaitable[T]], holds: Callable[[T], object], seconds: float = 20) -> T:
    """The first of what is seen of which ``holds`` is true; a bound, not a measurement."""
    async with asyncio.timeout(seconds):
        while not holds(seen := await read()):
            await asyncio.sleep(0.02)
    return seen
