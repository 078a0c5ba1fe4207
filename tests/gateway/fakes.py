"""The gateway before fake engines: its table, its numbers, and what tests wait for."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from starlette.applications import Starlette

from paternoster_contract.http import paths
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.app import create_app
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.routing.decisions import Queue, ReturnResult, RoutedRequest, Send
from paternoster_http.server import LimitedServer

T = TypeVar("T")


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
async def serving(app: Starlette, limits: HttpLimits | None = None) -> AsyncIterator[str]:
    """The URL of ``app``, which listens while in the block."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = LimitedServer(app, limits or HttpLimits())
        running = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await running


@asynccontextmanager
async def serving_table(table: Path, limits: HttpLimits | None = None, **options: Any) -> AsyncIterator[str]:
    """The URL of a gateway that has read ``table``."""
    async with serving(create_app(str(table), **options), limits) as url, aiohttp.ClientSession() as session:
        async with asyncio.timeout(20):
            while (await session.get(url + paths.READY)).status != 200:
                await asyncio.sleep(0.01)
        yield url


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


async def until(read: Callable[[], Awaitable[T]], holds: Callable[[T], object], seconds: float = 60) -> T:
    """The first of what is seen of which ``holds`` is true; a bound, not a measurement."""
    async with asyncio.timeout(seconds):
        while not holds(seen := await read()):
            await asyncio.sleep(0.02)
    return seen
