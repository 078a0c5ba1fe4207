"""uvicorn whose connections are bounded by :class:`HttpLimits`."""

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.acceptor import Acceptor
from paternoster_http.connections import Connections, Place
from paternoster_http.open_requests import OpenRequests
from paternoster_http.protocol import LimitedHttpProtocol

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""Between two looks at the times of all connections."""
LAST_BYTES_SECONDS = 5
"""Which connections get for their last bytes, once every answer is made."""
KEPT_FREE = 16
"""One place in this number is reserved for requests that are answered at once."""


class LimitedServer(uvicorn.Server):
    """Serves the sockets it is given, and those of :meth:`listen`; each has the limits for itself."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, **settings: Any) -> None:
        """``settings``: further ones of :class:`uvicorn.Config`."""
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                log_config=None,  # its records go where the process's own go
                log_level="warning",
                access_log=False,
                # Who a client is, and over what it came, is not for the client to say.
                proxy_headers=False,
                timeout_keep_alive=limits.keep_alive_timeout,
                **settings,
            )
        )
        self._limits = limits
        self._max_connections = _within_descriptors(limits.max_connections)
        self._checking: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listener in sockets or []:
            self.listen(listener)
        self._checking = asyncio.create_task(self._check_connections())

    def listen(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Serve this bound socket, too; only once the server has started."""

        def make_protocol(place: Place) -> LimitedHttpProtocol:
            return make(place=place)

        make = partial(
            LimitedHttpProtocol,
            self.config,
            self.server_state,
            self.lifespan.state,
            self._limits,
            OpenRequests(self._max_connections - self._max_connections // KEPT_FREE, self._limits.max_held_body_bytes),
        )
        acceptor = Acceptor(
            listener,
            Connections(self._max_connections, self._limits.max_connections_per_address),
            make_protocol,
            backlog=self.config.backlog,
            tls=tls,
            handshake_timeout=self._limits.header_timeout,
        )
        self.servers.append(acceptor)  # type: ignore[arg-type]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().shutdown(sockets)
        finally:
            if self._checking is not None:
                self._checking.cancel()

    async def _check_connections(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._check_times(asyncio.get_running_loop().time())

    def _check_times(self, now: float) -> None:
        for connection in list(self.server_state.connections):
            assert isinstance(connection, LimitedHttpProtocol)
            try:
                connection.check_progress(now)
            except Exception:
                log.exception("checking the times of a connection failed: it is closed")
                connection.transport.abort()


class BackgroundServer(LimitedServer):
    """A server in a process that has other work and its own signal handlers."""

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        super().__init__(
            app,
            limits,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=LAST_BYTES_SECONDS,
        )
        self._serving: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def start(self, listener: socket.socket) -> None:
        """Serve ``listener`` from now on, until :meth:`close`."""
        self._serving = asyncio.create_task(self.serve(sockets=[listener]))
        while not self.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn reports it in no other way
            await asyncio.sleep(0)
        if self._serving.done():
            await self._serving

    async def close(self) -> None:
        """Listen no more, and wait for the last answers."""
        self.should_exit = True
        if self._serving is not None:
            await self._serving


def _within_descriptors(wanted: int) -> int:
    """Half of the descriptors at most: the other half is for what requests need, such as connections to engines."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY or wanted <= most // 2:
        return wanted
    log.warning("max-connections is %d: taken as %d, half of the %d open files allowed", wanted, most // 2, most)
    return most // 2
