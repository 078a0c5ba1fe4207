"""Clients that leave before their answer ends, over real connections."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.engine.server.scripted_server import WAIT, Server

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_engine.server.app import create_app
from paternoster_engine.server.state import ServerState
from paternoster_http.server import LimitedServer


@asynccontextmanager
async def listening(state: ServerState) -> AsyncIterator[str]:
    """The server's URL, on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    http = LimitedServer(create_app(state), HttpLimits(), lifespan="off", timeout_graceful_shutdown=1)
    serving = asyncio.create_task(http.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        http.should_exit = True
        await serving


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():
            await asyncio.sleep(0.01)


async def leaves(url: str, path: str, body: dict[str, Any], arrived: Callable[[], bool]) -> None:
    """A client that closes its connection once its request has ``arrived``."""
    async with httpx.AsyncClient(base_url=url) as client:
        request_task = asyncio.create_task(client.post(path, json=body))
        await until(arrived)
        request_task.cancel()
        await asyncio.wait([request_task])


async def reasons_of_ends(server: Server) -> dict[str, int]:
    """How many requests ended for which reason, once none is left."""
    scheduler = server.loop.engine.scheduler
    async with asyncio.timeout(WAIT):
        while await server.loop.call_in_loop(lambda: scheduler.has_work):
            await asyncio.sleep(0.01)
    return await server.loop.call_in_loop(lambda: dict(scheduler.counters.finished))
