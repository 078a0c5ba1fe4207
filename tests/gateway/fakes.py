"""Engines that do as they are told, and the gateway before them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable

Behave = Callable[["FakeEngine", web.Request], Awaitable[web.StreamResponse]]


@dataclass
class FakeEngine:
    """An HTTP server whose answer to every POST is ``behave``."""

    name: str
    behave: Behave
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    gone: int = 0
    """Requests whose client went away before the answer was whole."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
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

    def publish(self, *engines: FakeEngine, ready: bool = True, **route: float) -> None:
        """Make these engines the replicas of model m."""
        replicas = [Replica(name=engine.name, url=engine.url, ready=ready) for engine in engines]
        self.table.write_text(RoutingTable(models={"m": ModelRoute(replicas=replicas, **route)}).model_dump_json())  # type: ignore[arg-type]


@asynccontextmanager
async def running(engine: FakeEngine) -> AsyncIterator[FakeEngine]:
    app = web.Application(client_max_size=2**26)
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
