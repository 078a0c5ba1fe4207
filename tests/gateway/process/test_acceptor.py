"""What the acceptor sets on the connections that it takes."""

import asyncio
import socket

from paternoster_http.acceptor import Acceptor
from paternoster_http.connections import Connections


async def test_a_body_does_not_wait_for_the_acknowledgement_of_its_headers() -> None:
    made: asyncio.Queue[asyncio.BaseTransport] = asyncio.Queue()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.put_nowait(transport)

    # As the gateway and uvicorn make theirs: without the protocol's number.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        acceptor = Acceptor(listener, Connections(4), lambda _: Protocol(), backlog=4, tls=None, handshake_timeout=1)
        _, writer = await asyncio.open_connection(*listener.getsockname())
        transport = await made.get()
        accepted: socket.socket = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.close()
        writer.close()
        acceptor.close()
        await acceptor.wait_closed()
