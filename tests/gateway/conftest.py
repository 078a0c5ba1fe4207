"""A gateway in this process, before engines that do as they are told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import uvicorn
from fakes import Behave, Door, FakeEngine, free_port, running

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
    port = free_port()
    table = tmp_path / "routes.json"
    table.write_text(RoutingTable().model_dump_json())
    app = create_app(str(table), max_body_bytes=2**20)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield Door(f"http://127.0.0.1:{port}", table)
    server.should_exit = True
    await serving


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
