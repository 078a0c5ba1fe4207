"""Where texts are rendered and tokenized: outside of the event loop, a bounded amount, for each tenant in turn."""

import asyncio
import heapq
import itertools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from paternoster_engine.server.errors import InvalidValue, TextQueueFull
from paternoster_http.shares import RESERVE, Shares

T = TypeVar("T")

SHORT = 64 * 2**10
"""Bytes of a text up to which it is short: about 20 ms of tokenizing."""
IN_FLIGHT = 16 * 2**20
"""Bytes of short texts that are accepted at once, and of long ones."""
BYTES_PER_WAITED_SECOND = 100_000
"""Bytes that are worth a second of waiting: a text goes behind all that come within its length's worth after it."""
NICE = 10
"""Niceness of the thread for long texts: the steps of the model have the same CPUs."""


class TextWork:
    """Two threads, one for short texts and one for long ones."""

    def __init__(self, longest: int) -> None:
        """``longest``: bytes of the longest text that the context could hold."""
        self.longest = longest
        self.most = max(IN_FLIGHT, 2 * longest)
        """Bytes of long texts that are accepted at once, and so the most of one request."""
        self._short = _Lane("short-texts", IN_FLIGHT)
        self._long = _Lane("long-texts", self.most, NICE)

    def measure_texts(self, field: str, texts: Sequence[str], max_model_len: int, *, cut: bool = False) -> int:
        """Bytes of ``texts`` together, the ``field`` of a body; encodes nothing.

        ``cut``: whether their tokens are cut, so that each may be longer than the context. Raises
        :class:`InvalidValue` for what the context or one request cannot hold.
        """
        sizes = [len(text.encode()) for text in texts]
        if max(sizes) > self.longest and not cut:
            raise InvalidValue(
                field,
                f"This model's maximum context length is {max_model_len} tokens, which are at most {self.longest} "
                f"bytes of text. However, {field} has {max(sizes)} bytes.",
            )
        if sum(sizes) > self.most:
            raise InvalidValue(
                field, f"{field}: has {sum(sizes)} bytes in all its texts, of at most {self.most} in one request"
            )
        return sum(sizes)

    async def run(self, tenant: str, size: int, function: Callable[[], T]) -> T:
        """What ``function`` makes of ``size`` bytes of text of ``tenant``; raises :class:`TextQueueFull`."""
        return await (self._short if size <= SHORT else self._long).run(tenant, size, function)

    def close(self) -> None:
        """Take no more; what runs ends by itself."""
        for lane in (self._short, self._long):
            lane.close()


class _Lane:
    """One thread and the texts that wait for it: tenants take turns, and each has a share of the bytes."""

    def __init__(self, name: str, most: int, nice: int = 0) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_be_nice, initargs=(nice,))
        # One tenant alone may have all of ``most``: what is reserved comes on top.
        self._bytes = Shares(most + most // RESERVE, most // RESERVE)
        self._busy = False
        self._waiting: OrderedDict[str, list[tuple[float, int, asyncio.Future[None]]]] = OrderedDict()
        """Heaps by tenant, none of them empty; the first tenant is next."""
        self._arrivals = itertools.count()

    @property
    def held_bytes(self) -> int:
        return self._bytes.held_by()

    async def run(self, tenant: str, size: int, function: Callable[[], T]) -> T:
        if not self._bytes.has_room((tenant,), size):
            raise TextQueueFull(size)
        self._bytes.add((tenant,), size)
        try:
            await self._wait_for_turn(tenant, size)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, function)
            finally:
                self._start_next()
        finally:
            self._bytes.remove((tenant,), size)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_turn(self, tenant: str, size: int) -> None:
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (time.monotonic() + size / BYTES_PER_WAITED_SECOND, next(self._arrivals), turn)
        heapq.heappush(self._waiting.setdefault(tenant, []), entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._start_next()
            raise

    def _start_next(self) -> None:
        while self._waiting:
            tenant, texts = self._waiting.popitem(last=False)
            turn = heapq.heappop(texts)[2]
            if texts:
                self._waiting[tenant] = texts
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False


def _be_nice(nice: int) -> None:
    if nice:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
