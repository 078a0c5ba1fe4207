"""Processor time and memory of processes, and a clock of processor seconds."""

import asyncio
import os
import time
from bisect import bisect_right
from pathlib import Path

import psutil

READ_SECONDS = 0.1


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """Processor time of a process, ended threads included, and of those below it with ``children``."""
    process = psutil.Process(pid)
    found = [process, *process.children(recursive=True)] if children else [process]
    return sum(time.clock_gettime((~each.pid << 3) | 2) for each in found)  # as clock_getcpuclockid(3) makes it


def thread_seconds(pid: int) -> float:
    """Processor time of the main thread of a process, to the nanosecond: ``/proc/PID/stat`` counts hundredths."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def resident_bytes(pid: int | None = None) -> int:
    """Memory of a process, or of this one, that is in use."""
    return int(psutil.Process(os.getpid() if pid is None else pid).memory_info().rss)


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
