"""A gateway in this process, before fake engines."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from tests.gateway.fakes import Door, serving_table

from paternoster_contract.routing import RoutingTable
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_e2e.fakes.engine import Behave, FakeEngine


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[FakeEngine]]]:
    """Start fake engines; they end with the test."""
    contexts = []

    async def start_one(name: str, behave: Behave) -> FakeEngine:
        context = FakeEngine(name, behave).listening()
        contexts.append(context)
        return await context.__aenter__()

    yield start_one
    for context in reversed(contexts):
        await context.__aexit__(None, None, None)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file with an empty routing table."""
    file = tmp_path / "routes.json"
    file.write_text(RoutingTable().model_dump_json())
    return file


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """A file with the gateway's root key, ``first``."""
    file = tmp_path / "roots"
    file.write_text("first\n")
    return file


@pytest.fixture
async def door(table: Path) -> AsyncIterator[Door]:
    """A gateway without keys of its own."""
    async with serving_table(table, HttpLimits(max_body_bytes=2**20)) as url:
        yield Door(url, table)


@pytest.fixture
async def keyed_door(table: Path, roots: Path) -> AsyncIterator[Door]:
    """A gateway whose keys are made from ``roots``."""
    async with serving_table(table, engine_key=roots) as url:
        yield Door(url, table)


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
