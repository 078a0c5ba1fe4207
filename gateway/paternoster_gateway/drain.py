"""The end of a gateway: first it is avoided, then it refuses, and what it has begun it finishes.

Clients and load balancers learn late that a server goes. For a while after the signal it answers on, says so on each
answer (``Connection: close``, RFC 9112 section 9.6) and at its readiness probe; only then it stops to listen.
"""

import asyncio
import signal
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Leaving:
    """Whether the end has begun."""

    def __init__(self) -> None:
        self.begun = False


class CloseWhileLeaving:
    """Middleware: every answer that begins while leaving is the last of its connection."""

    def __init__(self, app: ASGIApp, leaving: Leaving) -> None:
        self._app = app
        self._leaving = leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start" and self._leaving.begun:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, send_last if scope["type"] == "http" else send)


class Server(uvicorn.Server):
    """uvicorn that answers on for ``farewell_seconds`` after SIGTERM; a second signal ends that at once."""

    def __init__(self, app: FastAPI, leaving: Leaving, farewell_seconds: float, **config: Any) -> None:
        super().__init__(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="on", **config))
        self._leaving = leaving
        self._farewell_seconds = farewell_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGTERM or self._leaving.begun or self._farewell_seconds == 0:
            self._leaving.begun = True
            super().handle_exit(sig, frame)
            return
        self._leaving.begun = True
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(loop.call_later, self._farewell_seconds, super().handle_exit, sig, frame)
