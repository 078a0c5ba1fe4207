"""How long a gateway that was killed and started again takes until its index is what engines have cached."""

import asyncio
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from aiohttp import web

from harness.processes import cpu_seconds
from harness.servers import Server, gateway_server, route_to, started
from paternoster_contract.http import paths
from paternoster_contract.text_chains.stream import MEDIA_TYPE
from paternoster_e2e.fakes.engine import Behave, FakeEngine
from paternoster_engine.server.text_chains.feed import TextChainFeed

MODEL = "m"
PAUSE = 0.01
"""Between two looks at the gateway."""
LONGEST_SECONDS = 300.0


@dataclass(frozen=True)
class Restart:
    pieces: int
    start: float
    """Seconds from the start of the process to its first answer."""
    index: float
    """Seconds from then until all pieces were in the index."""
    processor: float
    """Seconds of it that the gateway had from its first answer on, answers to this runner included."""

    def __str__(self) -> str:
        whole = f"{self.pieces:,} pieces {self.index:.2f} s later, with {self.processor:.2f} s of a processor"
        return f"first answer after {self.start:.2f} s, {whole}"


def restart_gateway(gateway: Server, held: Callable[[], int]) -> Restart:
    """Kill ``gateway`` and start it; ``held``: how many pieces its engines have. Raises ``TimeoutError``."""
    gateway.end()
    gateway.start()
    began = time.monotonic()
    _wait(lambda: read_metric(gateway.port, "paternoster_gateway_replicas_indexed") is not None)
    answered, used = time.monotonic(), cpu_seconds(gateway.pid)
    _wait(lambda: read_metric(gateway.port, "paternoster_gateway_indexed_pieces") == held() > 0)
    whole = time.monotonic()
    return Restart(held(), answered - began, whole - answered, cpu_seconds(gateway.pid) - used)


def time_restart(engines: int, pieces: int) -> Restart:
    """Time a gateway's restart before engines that do nothing but publish ``pieces`` each, none of them shared."""
    with published_pieces(engines, pieces) as urls, tempfile.TemporaryDirectory() as folder:
        gateway = gateway_server(Path(folder), {MODEL: route_to(*urls)})
        with started([gateway]):
            return restart_gateway(gateway, lambda: engines * pieces)


@contextmanager
def published_pieces(engines: int, pieces: int) -> Iterator[list[str]]:
    """The URLs of servers with the stream of an engine each, in a thread of their own."""
    urls: list[str] = []
    loop, ended = asyncio.new_event_loop(), asyncio.Event()

    async def publish() -> None:
        chance = random.Random(0)
        async with AsyncExitStack() as stack:
            for number in range(engines):
                feed = TextChainFeed(f"{number:032x}", MODEL, isolates_tenants=True, block_size=16)
                feed.publish(False, {chance.getrandbits(64): 64 for _ in range(pieces)})
                feed.flush()
                engine = FakeEngine(answers={paths.TEXT_CHAINS: publish_chains(feed)})
                urls.append((await stack.enter_async_context(engine.listening())).url)
                stack.callback(feed.close)
            is_listening.set()
            await ended.wait()

    is_listening = threading.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(publish()))
    thread.start()
    is_listening.wait()
    try:
        yield urls
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def publish_chains(feed: TextChainFeed) -> Behave:
    """The stream of one engine."""

    async def stream_chains(_: FakeEngine, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": MEDIA_TYPE})
        await response.prepare(request)
        after = request.query.get("after")
        with suppress(ConnectionResetError):
            async for data in feed.subscribe(request.query.get("instance"), int(after) if after else None):
                await response.write(data)
        return response

    return stream_chains


def read_metric(port: int, name: str) -> float | None:
    """The sum over its labels; None of a process that does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{paths.METRICS}", timeout=30) as response:
            text = response.read().decode()
    except OSError:
        return None
    return sum(map(float, re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M)))


def _wait(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + LONGEST_SECONDS
    while not holds():
        if time.monotonic() > ends:
            raise TimeoutError(f"the index is not what engines hold after {LONGEST_SECONDS:.0f} s")
        time.sleep(PAUSE)
