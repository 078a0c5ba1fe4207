"""Listening sockets: opened by the process, or inherited from the one that started it."""

import socket

BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted."""


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket; raises ``OSError`` when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def inherited_listener(descriptor: int) -> socket.socket:
    """The bound TCP socket behind an inherited descriptor; raises ``OSError`` that says what it is instead."""
    try:
        listener = socket.socket(fileno=descriptor)
    except (OSError, OverflowError, ValueError) as error:
        raise OSError("is no open socket") from error
    if listener.family not in (socket.AF_INET, socket.AF_INET6) or listener.type != socket.SOCK_STREAM:
        listener.detach()
        raise OSError("is no TCP socket")
    if listener.getsockname()[1] == 0:
        listener.detach()
        raise OSError("is bound to no port")
    listener.set_inheritable(False)
    return listener
