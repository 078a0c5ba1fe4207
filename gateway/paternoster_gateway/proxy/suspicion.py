"""How likely a request made the replica stop that had it.

A replica that falls silent, or whose connections end, leaves many requests without an answer. Most have no part in it
and are sent to another replica. A request that made the replica stop would stop the next one, too. Three facts separate
the two: when a request was sent, how long it is, and whether the replica answered anything after it had the request. An
engine reads and checks a body on the event loop that answers probes, and that takes time by the byte.
"""

from enum import Enum

import aiohttp

from paternoster_gateway.proxy.liveness import Wait

LONG_BODY = 256 * 2**10
"""Bytes. The slowest body measured took an engine 14 µs a byte: 3.7 s for this size; a replica is hung after 7.6 s."""
MAX_POSSIBLE = 2
"""Replicas that stop while they have a request, after which it is sent to no other, whatever its length."""


class Suspicion(Enum):
    """How likely a request made the replica stop that had it."""

    NONE = "none"
    POSSIBLE = "possible"
    """One of several: sent to one other replica."""
    CERTAIN = "certain"
    """Long, and the replica was silent from the moment it had the request: sent to no other."""


def suspicion_of(size: int, error: BaseException, wait: Wait) -> Suspicion:
    """How likely a body of ``size`` bytes caused ``error``, which came in place of an answer's headers."""
    ended = isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError, TimeoutError))
    unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError))
    if wait.silent_before or unsent or not ended:
        return Suspicion.NONE
    if wait.silent and size > LONG_BODY and not wait.answered:
        return Suspicion.CERTAIN
    return Suspicion.POSSIBLE if wait.silent or not wait.answered else Suspicion.NONE
