"""A clock that stands while others have the processor: the processor seconds of an engine that is always busy."""

import asyncio
import time
from bisect import bisect_right

import psutil

READ_SECONDS = 0.1


class ProcessorClock:
    """Processor seconds that a process took, by ``time.perf_counter``.

    An engine with one thread and always work advances it as fast as time on a machine of its own, and more slowly
    beside other work; idle, it stands.
    """

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._when: list[float] = []
        self._cpu_seconds: list[float] = []

    def read(self) -> float:
        """Now; remembered, too."""
        now, used = time.perf_counter(), sum(self._process.cpu_times()[:2])
        self._when.append(now)
        self._cpu_seconds.append(used)
        return float(used)

    async def keep_reading(self) -> None:
        """Until cancelled."""
        while True:
            self.read()
            await asyncio.sleep(READ_SECONDS)

    async def sleep(self, seconds: float) -> None:
        """While another task keeps reading."""
        until = self.read() + seconds
        while self._cpu_seconds[-1] < until:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(READ_SECONDS)

    def at(self, when: float) -> float:
        """Processor seconds at a moment, along a line between the readings beside it."""
        index = bisect_right(self._when, when)
        if index == 0:
            return self._cpu_seconds[0]
        if index == len(self._when):
            return self._cpu_seconds[-1]
        (left, right), (less, more) = self._when[index - 1 : index + 1], self._cpu_seconds[index - 1 : index + 1]
        return less + (more - less) * (when - left) / (right - left)
