"""An engine without a model, scripted by its fields: for tests, end-to-end tests and benchmarks.

It has an engine's probes, ``/stats`` and admin API, and answers clients by ``behave``; ``answers`` come before all of
these. Clients' requests, which are all others that are no GET, are recorded.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Self

from aiohttp import web
from multidict import CIMultiDictProxy

from paternoster_contract.http import paths
from paternoster_contract.labels import ADMIN_PORT, ENGINE_PORT
from paternoster_contract.stats import EngineState, EngineStats
from paternoster_contract.stream_journal import JOURNAL

Behave = Callable[["FakeEngine", web.Request], Awaitable[web.StreamResponse]]
Answer = int | bytes | tuple[int, bytes] | Behave
"""A status, a body, both, or what makes an answer."""
NOTHING_COUNTED = {
    name: 0 if each.is_required() else each.get_default(call_default_factory=True)
    for name, each in EngineStats.model_fields.items()
}
"""Fields of ``/stats`` of an engine that had no request."""
ADMIN_PATHS = (paths.ADMIN_CONFIG, paths.ADMIN_DRAIN, "/paternoster/limits")
"""Paths that want the operator's key, that of vLLM's plugin among them."""
LARGEST_BODY_BYTES = 2**26
CHAT = {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}}]}
HANG_LOOK_SECONDS = 0.02
"""Time between two looks of a hung probe at whether it hangs."""


async def answer_chat(_: "FakeEngine", __: web.Request) -> web.StreamResponse:
    """Answer each request with the same chat completion of one token."""
    return web.json_response(CHAT)


@dataclass
class FakeEngine:
    """One engine: its behaviour, its numbers, and a record of what it was sent."""

    name: str = "fake"
    behave: Behave = answer_chat
    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    """Answers of these paths, whatever engines have there."""
    hung: bool = False
    """Whether ``/health`` stays without an answer."""
    numerics: str = ""
    """What ``/health`` has as the header of journals."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """Fields of ``/stats`` in which it differs from an idle engine."""
    capacity: int = 64
    live_cap: int = 64
    accepts: Callable[[str], bool] = lambda _: True
    """Whether its admin API takes a call with this ``Authorization``."""

    bodies: list[bytes] = field(default_factory=list)
    headers: list[CIMultiDictProxy[str]] = field(default_factory=list)
    """Headers of each request, in the order of :attr:`bodies`."""
    paths: list[str] = field(default_factory=list)
    gone: int = 0
    """Requests whose client went away before the answer was whole."""
    probes: int = 0
    looks: int = 0
    """Times that its numbers were read."""
    patches: list[dict[str, Any]] = field(default_factory=list)
    """Limits that it was sent."""
    admin_keys: list[str] = field(default_factory=list)
    """``Authorization`` of each call of its admin API."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in ADMIN_PATHS:
            self.admin_keys.append(request.headers.get("Authorization", ""))
            if not self.accepts(self.admin_keys[-1]):
                return web.Response(status=401)
            if request.method == "PATCH":
                self.patches.append(await request.json())
        elif request.method not in ("GET", "HEAD"):
            return await self._record(request)
        return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        match self.answers.get(request.path):
            case int(status):
                return web.Response(status=status)
            case bytes(body):
                return web.Response(body=body)
            case (status, body):
                return web.Response(status=status, body=body)
            case None:
                pass
            case other:
                return await other(self, request)
        match request.method, request.path:
            case _, paths.ADMIN_CONFIG | paths.ADMIN_DRAIN:
                return self._administer(request)
            case "GET", paths.HEALTH:
                return await self._answer_probe()
            case "GET", paths.READY:
                return web.Response()
            case "GET", paths.STATS:
                self.looks += 1
                return web.json_response(self.report())
            case "GET" | "HEAD", _:
                return web.Response(status=404)
        return await self.behave(self, request)

    def report(self) -> dict[str, Any]:
        """The document of ``/stats``."""
        idle = {
            "instance": self.name, "model": "m", "state": EngineState.READY, "started_at": 0, "time": time.time(),
            "last_tick_age_seconds": 0, "capacity": self.capacity, "live_cap": self.live_cap, "running": 0,
            "waiting": 0, "kv_block_size": 32, "kv_blocks": 100, "kv_blocks_used": 10, "kv_blocks_cached": 0,
            "kv_projected_peak": 0,
        }  # fmt: skip
        return {**NOTHING_COUNTED, **idle, **self.numbers}

    async def _answer_probe(self) -> web.Response:
        self.probes += 1
        while self.hung:
            await asyncio.sleep(HANG_LOOK_SECONDS)
        return web.Response(headers={JOURNAL: self.numerics} if self.numerics else None)

    def _administer(self, request: web.Request) -> web.Response:
        if request.path == paths.ADMIN_DRAIN:
            self.numbers["state"] = EngineState.DRAINING if request.method == "POST" else EngineState.READY
        elif request.method == "PATCH":
            limits = self.patches[-1]
            self.live_cap = limits.get("live_cap") or self.live_cap
            self.numbers |= {
                each: limits[each] for each in ("token_budget", "max_queue_milliseconds") if each in limits
            }
        draining = self.numbers.get("state") == EngineState.DRAINING
        return web.json_response({"capacity": self.capacity, "live_cap": self.live_cap, "draining": draining})

    async def _record(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.headers.append(request.headers)
        self.paths.append(request.path)
        try:
            return await self._answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.gone += 1
            raise

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        """On a port of this machine, at :attr:`url`, inside the block."""
        async with listening(self.handle) as self.url:
            yield self


class FakeEngines:
    """An engine for each address that requests came to, so that one process has those of all a fake node's pods."""

    def __init__(self, start: Callable[[str], FakeEngine] = FakeEngine) -> None:
        self.at: dict[str, FakeEngine] = {}
        self._start = start

    def engine(self, address: str) -> FakeEngine:
        if address not in self.at:
            self.at[address] = self._start(address)
        return self.at[address]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        return await self.engine(request.transport.get_extra_info("sockname")[0]).handle(request)


async def serve(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
    host: str = "127.0.0.1",
    ports: Iterable[int] = (),
    sockets: Iterable[socket.socket] = (),
) -> web.AppRunner:
    """Have ``handle`` answer whatever comes, and end with the runner's ``cleanup``."""
    app = web.Application(client_max_size=LARGEST_BODY_BYTES)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    for port in ports:
        await web.TCPSite(runner, host, port, backlog=4096).start()
    for each in sockets:
        await web.SockSite(runner, each).start()
    return runner


@asynccontextmanager
async def listening(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The URL at which ``handle`` answers whatever comes, inside the block."""
    runner = await serve(handle, ports=[0])
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextmanager
def engines_of_pods(ports: Iterable[int] = (ENGINE_PORT, ADMIN_PORT)) -> Iterator[FakeEngines]:
    """Engines at ``ports`` of all addresses of this machine, in a thread of their own, inside the block."""
    engines, loop = FakeEngines(), asyncio.new_event_loop()
    runner = loop.run_until_complete(serve(engines.handle, "0.0.0.0", ports))
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield engines
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
