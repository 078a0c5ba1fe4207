"""The end of a gateway: first it is avoided, then it refuses, and what it has begun it finishes.

Clients and load balancers learn late that a server goes. After the signal it answers on for a while, says so on each
answer (``Connection: close``, RFC 9112 section 9.6) and at its readiness probe. It listens at least until every answer
begun before the signal is whole: their connections were promised to live, and a client may send its next request on
one in the very moment in which a server would close it.
"""

import asyncio
import signal
import socket
import time
from types import FrameType

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_contract.http.limits import HttpLimits
from paternoster_contract.supervise import supervise
from paternoster_gateway.process.tls import Certificate
from paternoster_http.server import LimitedServer

LINGER_SECONDS = 1.0
"""After the last answer of before the signal: for the next request on its connection."""


class Leaving:
    """Whether the end has begun, and how many answers are older than that."""

    def __init__(self) -> None:
        self.begun = False
        self.older_answers = 0


class CloseWhileLeaving:
    """Middleware: every answer that begins while leaving is the last of its connection."""

    def __init__(self, app: ASGIApp, leaving: Leaving) -> None:
        self._app = app
        self._leaving = leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        older = not self._leaving.begun
        self._leaving.older_answers += older

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start" and self._leaving.begun:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        try:
            await self._app(scope, receive, send_last)
        finally:
            self._leaving.older_answers -= older


class Server(LimitedServer):
    """An HTTP server that says farewell for ``farewell_seconds`` or longer after SIGTERM, then finishes.

    Both together take ``drain_seconds`` beyond the farewell at most; a second signal ends the farewell at once.
    With ``tls`` it serves HTTPS, too, on that socket.
    """

    def __init__(
        self,
        app: FastAPI,
        limits: HttpLimits,
        leaving: Leaving,
        *,
        farewell_seconds: float,
        drain_seconds: int,
        tls: tuple[socket.socket, Certificate] | None = None,
    ) -> None:
        super().__init__(app, limits, lifespan="on", timeout_graceful_shutdown=drain_seconds)
        self._leaving = leaving
        self._farewell_seconds = farewell_seconds
        self._drain_seconds = drain_seconds
        self._tls = tls
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._tls is not None:
            listener, certificate = self._tls
            self.listen(listener, certificate.context)
            self._tasks.append(supervise(certificate.follow, "follow-certificate"))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        at_once = sig != signal.SIGTERM or self._leaving.begun or self._farewell_seconds == 0
        self._leaving.begun = True
        if at_once:
            self._exit(sig, frame)
            return
        loop = asyncio.get_running_loop()

        def begin() -> None:
            self._tasks.append(supervise(lambda: self._farewell(sig, frame), "farewell"))

        loop.call_soon_threadsafe(begin)

    async def _farewell(self, sig: int, frame: FrameType | None) -> None:
        await asyncio.sleep(self._farewell_seconds)
        started = time.monotonic()
        while self._leaving.older_answers and time.monotonic() - started < self._drain_seconds:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(LINGER_SECONDS)
        left = self._drain_seconds - (time.monotonic() - started)
        self.config.timeout_graceful_shutdown = max(1, round(left))
        self._exit(sig, frame)

    def _exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn raises each signal that it is told of again in the end: who was asked to end and has ended gives 0.
        if sig == signal.SIGTERM:
            self.should_exit = True
        else:
            super().handle_exit(sig, frame)
