"""A gateway process that is killed, or stopped for a while, has what the pools of two engines hold afterwards.

Engines are real but for their models: scheduler, pool, text index and HTTP.
"""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.engine.server.scripted_server import Serve, Server
from tests.gateway.fakes import serving, until

from paternoster_contract.http import paths
from paternoster_contract.http.headers import CACHED_TOKENS, DEBUG, ROUTING
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable

PATERNOSTER = str(Path(sys.executable).with_name("paternoster"))
CHAT = "/v1/chat/completions"
WAIT = 200.0
"""Seconds; a bound, not a measurement."""
POOL = {"max_model_len": 512, "num_blocks": 96, "max_batched_tokens": 512}
"""768 tokens: four of the prompts."""


def body(number: int) -> dict[str, Any]:
    text = " ".join(f"floor {number} of house {place}" for place in range(24))
    return {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 1}


@dataclass
class Gateway:
    command: list[str]
    url: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        self.processes.append(subprocess.Popen(self.command))

    def send_signal(self, number: int) -> None:
        self.processes[-1].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[-1].wait()


@dataclass
class Fleet:
    engines: list[Server]
    gateway: Gateway
    client: aiohttp.ClientSession

    def count_pieces(self) -> int:
        """Count the pieces in the pools of the engines."""
        indexes = [engine.loop.engine.scheduler.pool.text_index for engine in self.engines]
        return sum(index.num_resident for index in indexes if index is not None)

    async def send_straight(self, engine: int, number: int) -> None:
        """A prompt to one engine, past the gateway."""
        answer = await self.engines[engine].client.post(CHAT, json=body(number))
        assert answer.status_code == 200, answer.text

    async def wait_whole(self) -> None:
        """Until the gateway has the pieces of all pools; a process that does not answer yet has none."""
        await until(self._count_indexed, lambda seen: seen == self.count_pieces() > 0, WAIT)

    async def _count_indexed(self) -> float:
        try:
            async with self.client.get(f"{self.gateway.url}{paths.METRICS}") as response:
                lines = (await response.text()).splitlines()
        except aiohttp.ClientError:
            return -1.0
        return next(float(line.split()[1]) for line in lines if line.startswith("paternoster_gateway_indexed_pieces "))

    async def check_place(self, engine: int, number: int) -> None:
        """A prompt that ``engine`` holds is sent there, and what the gateway expects is there."""
        async with self.client.post(self.gateway.url + CHAT, json=body(number), headers={DEBUG: "1"}) as response:
            assert response.status == 200, await response.text()
            routing = dict(part.split("=") for part in response.headers[ROUTING].split(", "))
            assert routing["replica"] == str(engine)
            assert 0 < int(routing["captured"]) <= int(response.headers[CACHED_TOKENS])


@pytest.fixture
async def fleet(serve: Serve, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(serve("one", name="m", publishes_texts=True, **POOL)) for _ in range(2)
        ]
        urls = [await stack.enter_async_context(serving(engine.app)) for engine in engines]
        replicas = [Replica(name=f"pod-{number}", url=url, ready=True) for number, url in enumerate(urls)]
        routes = tmp_path / "routes.json"
        routes.write_text(RoutingTable(models={"m": ModelRoute(replicas=replicas)}).model_dump_json())
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [PATERNOSTER, "gateway", "--routes", str(routes), "--port", str(port)]
        gateway = Gateway(command, f"http://127.0.0.1:{port}")
        gateway.start()
        try:
            yield Fleet(engines, gateway, await stack.enter_async_context(aiohttp.ClientSession()))
        finally:
            gateway.send_signal(signal.SIGKILL)


@pytest.mark.timeout(900)
async def test_a_gateway_that_was_killed_or_away_has_what_pools_hold(fleet: Fleet) -> None:
    engines, gateway = fleet.engines, fleet.gateway
    await until(lambda: asyncio.sleep(0, [each.state.served.records_texts for each in engines]), all, WAIT)
    for number in range(6):
        await fleet.send_straight(number % 2, number)
    await fleet.wait_whole()
    gateway.send_signal(signal.SIGKILL)
    for number in range(10, 20):
        await fleet.send_straight(number % 2, number)
    gateway.start()
    await fleet.wait_whole()
    for number in (18, 19):
        await fleet.check_place(number % 2, number)
    # While it is stopped, engines lose all, and each has one other text: fewer pieces than the gateway has.
    gateway.send_signal(signal.SIGSTOP)
    for engine in engines:
        assert (await engine.admin.post(paths.ADMIN_RESET_PREFIX_CACHE)).status_code == 200
    for number in (30, 31):
        await fleet.send_straight(1 - number % 2, number)
    gateway.send_signal(signal.SIGCONT)
    await fleet.wait_whole()
    for number in (30, 31):
        await fleet.check_place(1 - number % 2, number)
