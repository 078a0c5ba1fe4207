"""Graceful shutdown of a gateway: it first fails its readiness probe, then stops listening, then finishes answers.

Clients and load balancers notice late that a server ends. After the signal the gateway goes on answering for a grace
period, with ``Connection: close`` (RFC 9112, section 9.6) on each answer and a failing readiness probe. It listens at
least until every answer that began before the signal is complete: those did not announce the end of their connection,
and a client may send its next request on one just as the server closes it.
"""

import asyncio
import signal
import socket
import time
from types import FrameType

from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_contract.supervise import supervise_task
from paternoster_gateway.process.tls import Certificate
from paternoster_http.server import LimitedServer

LINGER_SECONDS = 1.0
"""After the last answer that began before the signal: time for the next request on its connection."""


class Shutdown:
    """Whether a shutdown has begun, and how many answers began before it."""

    def __init__(self) -> None:
        self.begun = False
        self.older_answers = 0


class CloseDuringShutdown:
    """Middleware: each answer that begins during a shutdown closes its connection."""

    def __init__(self, app: ASGIApp, shutdown: Shutdown) -> None:
        self._app = app
        self._shutdown = shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        older = not self._shutdown.begun
        self._shutdown.older_answers += older

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start" and self._shutdown.begun:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        try:
            await self._app(scope, receive, send_last)
        finally:
            self._shutdown.older_answers -= older


class Server(LimitedServer):
    """An HTTP server that goes on answering for at least ``grace_seconds`` after SIGTERM, then drains.

    Both take at most ``grace_seconds + drain_seconds``; a second signal ends the grace period at once. With ``tls``
    it also serves HTTPS on that socket.
    """

    def __init__(
        self,
        app: Starlette,
        limits: HttpLimits,
        shutdown: Shutdown,
        *,
        grace_seconds: float,
        drain_seconds: int,
        tls: tuple[socket.socket, Certificate] | None = None,
    ) -> None:
        super().__init__(app, limits, lifespan="on", timeout_graceful_shutdown=drain_seconds)
        self._shutdown = shutdown
        self._grace_seconds = grace_seconds
        self._drain_seconds = drain_seconds
        self._tls = tls
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._tls is not None:
            listener, certificate = self._tls
            self.listen(listener, certificate.context)
            self._tasks.append(supervise_task(certificate.follow_files, "follow-certificate"))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        at_once = sig != signal.SIGTERM or self._shutdown.begun or self._grace_seconds == 0
        self._shutdown.begun = True
        if at_once:
            self._exit_on_signal(sig, frame)
            return
        loop = asyncio.get_running_loop()

        def start_grace() -> None:
            self._tasks.append(supervise_task(lambda: self._stop_after_grace(sig, frame), "shutdown-grace"))

        loop.call_soon_threadsafe(start_grace)

    async def _stop_after_grace(self, sig: int, frame: FrameType | None) -> None:
        await asyncio.sleep(self._grace_seconds)
        started = time.monotonic()
        while self._shutdown.older_answers and time.monotonic() - started < self._drain_seconds:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(LINGER_SECONDS)
        left = self._drain_seconds - (time.monotonic() - started)
        self.config.timeout_graceful_shutdown = max(1, round(left))
        self._exit_on_signal(sig, frame)

    def _exit_on_signal(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn raises each signal that it handled again when it ends; after a graceful shutdown the status must be 0.
        if sig == signal.SIGTERM:
            self.should_exit = True
        else:
            super().handle_exit(sig, frame)
