"""A gateway that gets SIGTERM is first avoided, then stops listening, and finishes what it has begun."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.gateway.fakes import Door

from paternoster_contract.cli.command import main
from paternoster_e2e.fakes.engine import FakeEngine

SHUTDOWN_DELAY_SECONDS = 1.5


@pytest.fixture
def process(table: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    command = [Path(sys.executable).with_name("paternoster"), "gateway", f"--routes={table}", "--port=0"]
    process = subprocess.Popen([*command, f"--shutdown-delay-seconds={SHUTDOWN_DELAY_SECONDS}"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("listening on http://"), f"exit code {process.wait()}"
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def gateway(process: tuple[subprocess.Popen[bytes], str]) -> tuple[subprocess.Popen[bytes], str]:
    """A gateway process over an empty table, and its URL."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        while await _status(session, f"{process[1]}/ready") != 200:
            await asyncio.sleep(0.05)
    return process


async def test_a_gateway_answers_on_after_sigterm_and_closes_each_connection(
    gateway: tuple[subprocess.Popen[bytes], str],
) -> None:
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
            assert answer.headers["Connection"] == "close", "and its client connects elsewhere"
    assert await asyncio.to_thread(process.wait, 30) == 0


async def test_a_stream_outlives_the_grace_period(
    gateway: tuple[subprocess.Popen[bytes], str], table: Path, start: Callable[..., Awaitable[FakeEngine]]
) -> None:
    pause = asyncio.Event()

    async def slow(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        await pause.wait()
        await response.write(b"data: last\n\n")
        return response

    process, url = gateway
    Door(url, table).publish(await start("a", slow))
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        while await _status(session, f"{url}/v1/models", has='"m"') != 200:
            await asyncio.sleep(0.05)
        body = {"model": "m", "prompt": "x"}
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            assert answer.status == 200
            assert await answer.content.readline() == b"data: first\n"
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(2 * SHUTDOWN_DELAY_SECONDS)
            pause.set()
            assert (await answer.content.read()).endswith(b"data: last\n\n")
        # The connection was promised to live: a request sent on it at once is answered, as its last.
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            assert answer.status == 200
            assert answer.headers["Connection"] == "close"
    await asyncio.to_thread(process.wait, 30)


async def test_a_second_signal_ends_the_grace_period(gateway: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = gateway
    async with aiohttp.ClientSession() as session:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while await _status(session, f"{url}/ready") == 200:
                await asyncio.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    await asyncio.to_thread(process.wait, 30)


async def _status(session: aiohttp.ClientSession, url: str, has: str = "") -> int:
    """Status of the answer; 0 without one, or when ``has`` is not in it."""
    try:
        async with session.get(url) as answer:
            return answer.status if has in await answer.text() else 0
    except aiohttp.ClientConnectionError:
        return 0


def test_renamed_flag_is_refused_with_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["gateway", "--routes", "table.json", "--farewell-seconds", "3"])
    assert "--farewell-seconds was renamed: use --shutdown-delay-seconds" in capsys.readouterr().err
