"""Statistics tell of every model and client: with a port of their own, clients cannot ask for them."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

NUMBERS = ("/stats", "/metrics")


@pytest.fixture
def urls(table: Path) -> Iterator[tuple[str, str]]:
    """Where requests go, and where statistics are."""
    command = [Path(sys.executable).with_name("paternoster"), "gateway", f"--routes={table}", "--port=0"]
    process = subprocess.Popen([*command, "--stats-port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(2)]
        assert [line[:2] for line in lines] == [["listening", "on"], ["statistics", "on"]]
        yield lines[0][-1], lines[1][-1]
    finally:
        process.kill()
        process.wait()


async def test_statistics_are_on_their_port_alone_and_requests_on_the_other(
    client: aiohttp.ClientSession, urls: tuple[str, str]
) -> None:
    requests, statistics = urls

    async def status(url: str, path: str, **headers: str) -> int:
        async with client.get(url + path, headers=headers) as response:
            return response.status

    async with aiohttp.ClientSession() as patient:
        for _ in range(200):
            try:
                async with patient.get(f"{requests}/health"):
                    break
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)  # until it listens
    for path in NUMBERS:
        assert await status(statistics, path) == 200
        for hidden in (path, f"{path}/", f"/%2e{path}", path.upper()):
            assert await status(requests, hidden) == 404
        assert await status(requests, path, Host=statistics.removeprefix("http://")) == 404
    assert await status(requests, "/v1/models") == 200
    assert await status(statistics, "/v1/models") == 404
    assert [await status(url, "/health") for url in urls] == [200, 200]
