"""Measure how long a server's /health waits while something is done to it, and how much memory it has meanwhile."""

import multiprocessing
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection

import psutil

from harness.processes import cpu_seconds, resident_bytes
from harness.servers import Server

PERIOD_SECONDS = 0.01
GONE_SECONDS = 60.0
"""What counts as the wait for the /health of a server that ended."""


@dataclass
class Process:
    """A server that another process started."""

    port: int
    pid: int


def measure_wait(connection: HTTPConnection) -> float:
    """Seconds of one call of /health."""
    started = time.monotonic()
    connection.request("GET", "/health")
    connection.getresponse().read()
    return time.monotonic() - started


def watch(port: int, pid: int, by_processor: bool, orders: Connection) -> None:
    """Call /health all the time; at each order send its longest wait in seconds and the most bytes since the last."""
    longest, most = 0.0, 0
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    while True:
        try:
            used = cpu_seconds(pid)
            wait = measure_wait(connection)
            longest = max(longest, min(wait, cpu_seconds(pid) - used) if by_processor else wait)
            most = max(most, resident_bytes(pid))
        except (OSError, HTTPException, psutil.Error):
            connection.close()
            longest = max(longest, GONE_SECONDS)
        if orders.poll(PERIOD_SECONDS):
            orders.recv()
            orders.send((longest, most))
            longest, most = 0.0, 0


class Watched:
    """A server, and the process that watches it."""

    def __init__(self, server: Process | Server, *, by_processor: bool = True) -> None:
        """``by_processor``: no more of a wait counts than the server's processor time in it."""
        self.server = server
        self._orders, theirs = multiprocessing.Pipe()
        arguments = (server.port, server.pid, by_processor, theirs)
        self._process = multiprocessing.Process(target=watch, args=arguments, daemon=True)
        self._process.start()

    def read(self) -> tuple[float, int]:
        """The longest wait, and the most bytes, since it was last read."""
        self._orders.send(True)
        longest, most = self._orders.recv()
        return longest, most

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def post_body(port: int, path: str, body: bytes, seconds: float) -> tuple[int, str]:
    """The status, 0 for none within ``seconds``, and the first of the answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()[:160].decode(errors="replace")
    except (OSError, HTTPException) as error:
        return 0, repr(error)[:160]
    finally:
        connection.close()
