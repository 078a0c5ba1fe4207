"""A gateway in this process, before engines that do as they are told."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import uvicorn
from fakes import Behave, Door, FakeEngine, running

from paternoster_contract.routing import RoutingTable
from paternoster_gateway.app import create_app


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[FakeEngine]]]:
    """Start fake engines; they end with the test."""
    contexts = []

    async def start_one(name: str, behave: Behave) -> FakeEngine:
        context = running(FakeEngine(name, behave))
        contexts.append(context)
        return await context.__aenter__()

    yield start_one
    for context in reversed(contexts):
        await context.__aexit__(None, None, None)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    table = tmp_path / "routes.json"
    table.write_text(RoutingTable().model_dump_json())
    app = create_app(str(table), max_body_bytes=2**20)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield Door(f"http://127.0.0.1:{listening.getsockname()[1]}", table)
        server.should_exit = True
        await serving


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
