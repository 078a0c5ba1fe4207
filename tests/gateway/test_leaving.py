"""A gateway that is told to end is first avoided, then deaf, and finishes what it has begun."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from fakes import free_port

from paternoster_contract.routing import RoutingTable

FAREWELL_SECONDS = 1.5


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    table = tmp_path / "routes.json"
    table.write_text(RoutingTable().model_dump_json())
    port = free_port()
    command = [Path(sys.executable).with_name("paternoster"), "gateway", f"--routes={table}", f"--port={port}"]
    process = subprocess.Popen([*command, f"--farewell-seconds={FAREWELL_SECONDS}"])
    yield process, f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture
async def gateway(process: tuple[subprocess.Popen[bytes], str]) -> tuple[subprocess.Popen[bytes], str]:
    """A gateway process over an empty table, and its URL."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        while await _status(session, f"{process[1]}/ready") != 200:
            await asyncio.sleep(0.05)
    return process


async def test_it_says_farewell_before_it_goes(gateway: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = gateway
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/v1/models") as answer:
            assert answer.status == 200
            assert "close" not in answer.headers.get("Connection", "")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while await _status(session, f"{url}/ready") == 200:
                await asyncio.sleep(0.02)
        async with session.get(f"{url}/v1/models") as answer:
            assert answer.status == 200, "late clients are still answered"
            assert answer.headers["Connection"] == "close", "and told to go elsewhere"
    assert await asyncio.to_thread(process.wait, 30) in (0, -signal.SIGTERM)


async def test_a_second_signal_ends_the_farewell(gateway: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = gateway
    async with aiohttp.ClientSession() as session:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while await _status(session, f"{url}/ready") == 200:
                await asyncio.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    await asyncio.to_thread(process.wait, 30)


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    try:
        async with session.get(url) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0
