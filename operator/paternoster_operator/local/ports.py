"""TCP ports of this machine that no other user can take, from the moment they are chosen until the session ends.

A port that is chosen, closed and named to a program is free until that program binds it: another user's program may
bind it first, and is then sent prompts and keys. Here the socket is bound once and handed to each run of the program.
"""

import random
import socket
from contextlib import suppress

HOST = "127.0.0.1"
FIRST_PORT, LAST_PORT = 32_768, 60_999
"""Ports that Linux gives to sockets that name none: no service is expected there."""
ATTEMPTS = 1_000
BACKLOG = 2048


class ReservedPort:
    """A bound socket, which programs inherit one after another."""

    def __init__(self, bound: socket.socket, *, waits: bool = False) -> None:
        """``waits``: it listens always, and clients wait in the kernel's backlog while no program accepts them."""
        self._socket = bound
        self._waits = waits
        self.number: int = bound.getsockname()[1]
        self.url = f"http://{HOST}:{self.number}"

    def fileno(self) -> int:
        return self._socket.fileno()

    def share_port(self) -> None:
        """Let a program bind it that cannot inherit a socket.

        Until that program listens, another user's program could bind the port in its place.
        """
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def refuse_clients(self) -> None:
        """The program has ended: refuse clients until the next run listens, unless they are to wait for it."""
        if not self._waits:
            self.stop_listening()

    def stop_listening(self) -> None:
        """Refuse clients, also where a program still has the socket.

        A socket that does not listen is left alone: once shut down in that state, it resets every connection that it
        accepts when it listens again (Linux sets ``sk_shutdown``, which accepted sockets inherit).
        """
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            with suppress(OSError):  # it has just ended
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class PortPool:
    """Ports for engines: one that was released serves another engine of this session, and nothing else meanwhile.

    A gateway that has not heard yet of an engine's end sends requests to its port.
    """

    def __init__(self) -> None:
        self._released: list[ReservedPort] = []

    def acquire(self) -> ReservedPort:
        """Raises ``OSError`` when no port is free."""
        return self._released.pop() if self._released else reserve_port()

    def release(self, port: ReservedPort) -> None:
        """Its program has ended."""
        port.refuse_clients()
        self._released.append(port)

    def close(self) -> None:
        """Give the ports that are in no use back to the machine."""
        for port in self._released:
            port.close()
        self._released.clear()


def reserve_port() -> ReservedPort:
    """Bind a free port that no other user can share. Raises ``OSError`` when none is free.

    The kernel keeps a socket bound that was bound to a number and stops listening (``shutdown``). No SO_REUSEADDR: any
    user could share the port while no socket listens. SO_REUSEPORT, which takes effect for sockets of one user alone
    (socket(7)), lets the next run listen beside connections of the last; set once bound, so that a port of another
    session of this user is not free.
    """
    for _ in range(ATTEMPTS):
        bound = socket.socket()
        try:
            bound.bind((HOST, random.randint(FIRST_PORT, LAST_PORT)))
        except OSError:
            bound.close()
        else:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return ReservedPort(bound)
    raise OSError(f"none of {ATTEMPTS} ports from {FIRST_PORT} to {LAST_PORT} of {HOST} is free")


def listen_on(port: int) -> ReservedPort:
    """Listen on the port that clients know, 0 for a free one. Raises ``OSError`` or ``OverflowError``.

    With SO_REUSEADDR, as connections of an earlier session may still be closing: such a port is safe while it listens.
    """
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return ReservedPort(listener, waits=True)
