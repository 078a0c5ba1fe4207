"""Where texts are rendered and tokenized: outside of the event loop, a bounded amount, short ones before long ones."""

import asyncio
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from paternoster_engine.server.errors import TextQueueFull

T = TypeVar("T")

SHORT = 64 * 2**10
"""Bytes of a text up to which it is short: about 20 ms of tokenizing."""
IN_FLIGHT = 16 * 2**20
"""Bytes of short texts that are taken at once, and of long ones."""
PATIENCE = 100_000
"""Bytes that are worth a second of waiting: a text goes behind all that come within its length's worth after it."""
NICE = 10
"""What the thread for long texts leaves to others; the steps of the model have the same CPUs."""


class TextWork:
    """Two threads, one for short texts and one for long ones."""

    def __init__(self, longest: int) -> None:
        """``longest``: bytes of the longest text that the model could take."""
        self.most = max(IN_FLIGHT, 2 * longest)
        """Bytes of long texts that are taken at once, and so the most of one request."""
        self._short = _Lane("short-texts", IN_FLIGHT)
        self._long = _Lane("long-texts", self.most, NICE)

    async def run(self, size: int, function: Callable[[], T]) -> T:
        """What ``function`` makes of ``size`` bytes of text; raises :class:`TextQueueFull`."""
        return await (self._short if size <= SHORT else self._long).run(size, function)

    def close(self) -> None:
        """Take no more; what runs ends by itself."""
        for lane in (self._short, self._long):
            lane.close()


class _Lane:
    """One thread and those who wait for it."""

    def __init__(self, name: str, most: int, nice: int = 0) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_be_nice, initargs=(nice,))
        self._most = most
        self._taken = 0
        self._busy = False
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()

    async def run(self, size: int, function: Callable[[], T]) -> T:
        if self._taken + size > self._most:
            raise TextQueueFull(size)
        self._taken += size
        try:
            await self._turn(size)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, function)
            finally:
                self._next()
        finally:
            self._taken -= size

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, size: int) -> None:
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (time.monotonic() + size / PATIENCE, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()
            raise

    def _next(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False


def _be_nice(nice: int) -> None:
    if nice:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
