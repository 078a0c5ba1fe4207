"""Listening sockets: opened by the process, or inherited from the one that started it."""

import socket

BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted."""


EVERY_ADDRESS = ("", "::")
"""Hosts that stand for every address of the machine, of IPv4 and IPv6. ``0.0.0.0`` is every one of IPv4."""


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket; raises ``OSError`` when the address cannot be had."""
    listener = bind_socket(host, port)
    listener.listen(BACKLOG)
    return listener


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that does not listen yet; raises ``OSError`` when the address cannot be had.

    For :data:`EVERY_ADDRESS` it takes connections of both families, or of IPv4 where the system has no IPv6.
    """
    every = host in EVERY_ADDRESS
    if every:
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not every)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


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
