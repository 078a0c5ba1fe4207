"""What stands between an operator and its API server, and fails as a test asks."""

import asyncio
import json
import ssl
import subprocess
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from paternoster_e2e.kubectl import Kubectl

RESET, SILENCE, LOSS = "reset", "silence", "loss of packets"
OF_ONE_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True)
class ApiFault:
    """What some requests are answered: a status, or one of :data:`RESET`, :data:`SILENCE` and :data:`LOSS`."""

    answer: int | str
    plural: str = ""
    """Plural of the requests that meet it; all where this is empty."""
    namespace: str = ""
    retry_after: int | None = None
    """Seconds."""
    of_api_server: bool = True
    """Whether a status comes with the API server's own document, and not with a balancer's page."""

    def __str__(self) -> str:
        words = [str(self.answer)]
        if self.retry_after is not None:
            words.append(f"Retry-After {self.retry_after}")
        if not self.of_api_server:
            words.append("of a balancer")
        return ", ".join(words)

    def meets(self, path: str) -> bool:
        parts = path.split("/")
        return (not self.plural or self.plural in parts) and (not self.namespace or self.namespace in parts)


class FailingProxy:
    """Forwards to ``server``; requests meet the fault of :meth:`fail`, and so do watches that are open by then.

    In silence nothing passes, either way, and what was sent meanwhile arrives after it, a write also where its client
    has given up. Where packets are lost the kernel drops all of them, and TCP sends them again; this needs a network
    namespace of the test's own.
    """

    def __init__(self, server: str, tls: ssl.SSLContext) -> None:
        self._server = server
        self._tls = tls
        self._fault: ApiFault | None = None
        self._over = asyncio.Event()
        """Set at the end of the fault."""
        self._open: set[tuple[str, asyncio.Transport]] = set()
        """Path and connection of the requests that are being answered."""
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.refused: Counter[str] = Counter()
        """Requests that met the fault, by path."""
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def fail(self, fault: ApiFault | None) -> None:
        """Let requests meet ``fault`` from now on, or none."""
        table = f"failing_proxy_{self._port}"
        if fault is not None and fault.answer == LOSS:
            rules = f"tcp dport {self._port} drop; tcp sport {self._port} drop"
            _nft(f"table ip {table} {{ chain input {{ type filter hook input priority 0; {rules}; }}; }}")
        elif self._fault is not None and self._fault.answer == LOSS:
            _nft(f"delete table ip {table}")
        asyncio.run_coroutine_threadsafe(self._fail(fault), self._loop).result()

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        connector, unlimited = aiohttp.TCPConnector(ssl=self._tls, limit=0), aiohttp.ClientTimeout(None)
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        async with aiohttp.ClientSession(
            connector=connector, timeout=unlimited, auto_decompress=False
        ) as self._session:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._port = runner.addresses[0][1]
            self._started.set()
            await self._stopped.wait()
            await runner.cleanup()

    async def _fail(self, fault: ApiFault | None) -> None:
        self._over.set()
        self._over = asyncio.Event()
        self._fault = fault
        if fault is None:
            return
        self.refused.clear()
        for path, transport in list(self._open):
            if fault.meets(path):
                self.refused[path] += 1
                if fault.answer not in (SILENCE, LOSS):
                    transport.abort()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = self._fault
        if fault is not None and fault.meets(request.path):
            self.refused[request.path] += 1
            if isinstance(fault.answer, int):
                return _refuse(fault)
            if fault.answer == RESET:
                return _abort(request)
        assert request.transport is not None
        connection = (request.path, request.transport)
        self._open.add(connection)
        try:
            return await self._forward(request)
        except (aiohttp.ClientError, ConnectionError):
            return _abort(request)
        finally:
            self._open.discard(connection)

    async def _forward(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        await self._wait_for_end(request)
        if request.method == "GET" and (request.transport is None or request.transport.is_closing()):
            return _abort(request)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in OF_ONE_HOP}
        url = self._server + request.raw_path
        async with self._session.request(request.method, url, headers=headers, data=body or None) as answer:
            await self._wait_for_end(request)
            passed = {name: value for name, value in answer.headers.items() if name.lower() not in OF_ONE_HOP}
            response = web.StreamResponse(status=answer.status, headers=passed)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await self._wait_for_end(request)
                await response.write(piece)
        return response

    async def _wait_for_end(self, request: web.BaseRequest) -> None:
        """Nothing passes in silence."""
        while self._fault is not None and self._fault.answer == SILENCE and self._fault.meets(request.path):
            await self._over.wait()


def _nft(rules: str) -> None:
    subprocess.run(["nft", "--file=-"], input=rules, text=True, check=True)


def _refuse(fault: ApiFault) -> web.Response:
    assert isinstance(fault.answer, int)
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    if not fault.of_api_server:
        return web.Response(text="nothing is here", status=fault.answer, headers=headers)
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.answer, "message": "as told"}
    return web.json_response(status, status=fault.answer, headers=headers)


def _abort(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@contextmanager
def failing_proxy(kubectl: Kubectl) -> Iterator[FailingProxy]:
    """One before the cluster of ``kubectl``, for as long as the block runs."""
    config = json.loads(kubectl("config", "view", "--minify", "--flatten", "--raw", "--output=json"))
    cluster = config["clusters"][0]["cluster"]
    authority = b64decode(cluster["certificate-authority-data"]).decode()
    proxy = FailingProxy(cluster["server"], ssl.create_default_context(cadata=authority))
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
