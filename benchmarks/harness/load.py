"""Load on servers: a client with prompts of its model's tokens, and work beside a measurement."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from paternoster_load.client import BenchClient
from paternoster_traces.prompts import PromptSource, default_text


@asynccontextmanager
async def open_client(
    url: str, model: str = "", temperature: float = 0
) -> AsyncIterator[tuple[BenchClient, PromptSource]]:
    """A client of ``model``, or of the first that is listed, whose answers go on to their last token; and prompts."""
    async with BenchClient(url, model, sampling={"temperature": temperature, "ignore_eos": True}) as client:
        client.model = model or (await client.list_models())[0]["id"]
        yield client, PromptSource(await client.tokenize(default_text()))


def open_session(seconds: float | None = None, **connector: Any) -> aiohttp.ClientSession:
    """A session with any number of connections, and without a limit of time where there is no other."""
    connections = aiohttp.TCPConnector(limit=0, **connector)
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds), connector=connections)


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Tasks that run inside the block and are cancelled after it."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
