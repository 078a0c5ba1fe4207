"""Accepts the connections of one listening socket for as long as there is room for them.

asyncio's own loop accepts without an end, and at the limit of file descriptors logs each attempt; uvloop's accepts
again at once. This one does not call the kernel while there is no room: new connections wait in its backlog.
"""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from paternoster_http.connections import Connections, Place

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Connections accepted before others get their turn."""
PAUSE_SECONDS = 1.0
"""Where the system has no file descriptors or memory left."""
LOOK_AGAIN_SECONDS = 0.25
"""Where there is no room: somebody may have waited long enough to give way."""
WARN_AGAIN_SECONDS = 60.0
UNSENT_BYTES = 128 * 1024
"""What the kernel takes beyond what the client's window admits, so that a client that does not read is soon noticed."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """In place of :class:`asyncio.Server`; ``listener`` is closed with it."""

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        protocol: Callable[[Place], asyncio.Protocol],
        *,
        backlog: int,
        tls: ssl.SSLContext | None,
        handshake_timeout: float,
    ) -> None:
        self._listener = listener
        self._connections = connections
        self._protocol = protocol
        self._tls = tls
        self._handshake_timeout = handshake_timeout
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[None]] = set()
        self._reading = False
        self._again: asyncio.TimerHandle | None = None
        self._exhausted = False
        self._warned_at = -WARN_AGAIN_SECONDS
        connections.on_room = self._resume
        listener.setblocking(False)
        listener.listen(backlog)
        self._closed = False
        self._resume()

    def close(self) -> None:
        """Accept no more; connections that stand go on."""
        self._stop()
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        for task in self._starting:
            task.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._starting, return_exceptions=True)

    def _resume(self) -> None:
        if not (self._reading or self._closed or self._exhausted):
            self._loop.add_reader(self._listener.fileno(), self._accept)
            self._reading = True

    def _stop(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._listener.fileno())
            self._reading = False

    def _stop_for(self, seconds: float) -> None:
        self._stop()
        if self._again is None:
            self._again = self._loop.call_later(seconds, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._exhausted = False
        self._resume()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            if not self._connections.make_room():
                self._stop_for(LOOK_AGAIN_SECONDS)
                return
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno == errno.EINVAL:  # the process that handed the socket over has shut it down
                    self.close()
                    return
                self._exhausted = True
                self._stop_for(PAUSE_SECONDS)
                self._log_error(error)
                return
            self._start_connection(accepted, str(address[0]))

    def _log_error(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARN_AGAIN_SECONDS:
            self._warned_at = now
            advice = "; raise the limit of open files or lower --max-connections" if error.errno in EXHAUSTED else ""
            log.warning("cannot accept connections: %s; trying again every second%s", error.strerror, advice)

    def _start_connection(self, accepted: socket.socket, host: str) -> None:
        place = self._connections.open_place(host, partial(_close_socket, accepted))
        if place is None:
            accepted.close()
            return
        accepted.setblocking(False)
        with suppress(OSError, AttributeError):
            # asyncio does so for sockets that were made with the protocol's number alone. Without it, what follows the
            # headers waits for their acknowledgement, which clients delay by 40 ms.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        task = self._loop.create_task(self._start(accepted, place))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, accepted: socket.socket, place: Place) -> None:
        try:
            await self._loop.connect_accepted_socket(
                partial(self._protocol, place),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_timeout if self._tls else None,
            )
        # A client that left, or speaks no TLS; OSError has ssl.SSLError and the timeout of a handshake.
        except OSError:
            place.close_place()
            accepted.close()
        except BaseException:
            place.close_place()
            accepted.close()
            raise


def _close_socket(accepted: socket.socket) -> None:
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
