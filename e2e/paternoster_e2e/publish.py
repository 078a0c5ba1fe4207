"""The gateway on this machine's loopback: connections from outside the cluster's network, carried into it."""

import asyncio
import math
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from paternoster_e2e.kubectl import CommandError, Kubectl
from paternoster_e2e.release import gateway_address

HOST = "127.0.0.1"
PORT = 8080
ABSENT = "no gateway answers: install the chart, and wait until it is ready\n"
KNOWN_SECONDS = 2.0
"""For how long an answer of the API server counts: one for each connection would be most of a load test's work."""
CONNECT_SECONDS = 5.0
CHUNK_BYTES = 65536

Address = tuple[str, int]


def listening() -> socket.socket:
    """A socket on :data:`PORT` of the loopback, or on a free one where that is taken.

    A socket stays in the network namespace in which it was made: a process that inherits it accepts connections from
    there.
    """
    try:
        return socket.create_server((HOST, PORT))
    except OSError:
        return socket.create_server((HOST, 0))


def publish_gateway(listener: socket.socket, kubectl: Kubectl) -> None:
    """Carry each connection to the gateway of the chart as README installs it, until this process ends."""

    address: Address | None = None
    looked_up_at = -math.inf

    def where() -> Address | None:
        nonlocal address, looked_up_at
        if time.monotonic() - looked_up_at > KNOWN_SECONDS:
            try:
                address = gateway_address(kubectl)
            except CommandError:
                address = None
            looked_up_at = time.monotonic()
        return address

    threading.Thread(target=lambda: asyncio.run(relay(listener, where)), daemon=True).start()


async def relay(listener: socket.socket, where: Callable[[], Address | None]) -> None:
    """Serve ``listener`` for ever; ``where`` is called for each connection, as users install and uninstall.

    A client that connects while no process listens gets a 503 that says so.
    """

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            address = await asyncio.to_thread(where)
            try:
                if address is None:
                    raise ConnectionError
                async with asyncio.timeout(CONNECT_SECONDS):
                    answers, questions = await asyncio.open_connection(*address)
            except OSError:
                await _absent(reader, writer)
            else:
                await asyncio.gather(_copy(reader, questions), _copy(answers, writer))
                questions.close()
        writer.close()

    async with await asyncio.start_server(carry, sock=listener) as server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, to its end; the other may have more to say."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def _absent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # What was not read when a socket is closed resets the connection, and the client would not see the answer.
    await reader.read(CHUNK_BYTES)
    head = f"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: {len(ABSENT)}\r\n\r\n"
    writer.write((head + ABSENT).encode())
    await writer.drain()
