"""A bounded part of the event loop for work that a stranger sends."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

LEAST_SECONDS = 0.001
"""Shortest work between two pauses."""
PAUSE = 2.0
"""Times as long as the work before it: a third of a busy loop is for the work."""
IDLE_SECONDS = 0.0001
"""Longest turn of a loop that has nothing else to do."""
LONGEST_START_SECONDS = 0.01
"""Longest wait for an idle loop between two groups of starts, beside its turn: each stream costs a connection."""
STARTS_TOGETHER = 8
"""Streams that start in one group: 20,000 replicas, whose streams begin anew every ten minutes, need 44 starts/s."""
T = TypeVar("T")


class LoopShare:
    """Runs steps one at a time, first come first served, with pauses."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._start = asyncio.Lock()
        self._started = 0
        self._worked = 0.0

    async def run(self, step: Callable[[], T], *, ends_when_idle: bool = False) -> T:
        """The result of ``step``; raises what it raises.

        ``ends_when_idle``: the pause before it, once the loop has nothing else to do.
        """
        async with self._turn:
            if self._worked >= LEAST_SECONDS:
                pause, self._worked = PAUSE * self._worked, 0.0
                await (_wait_idle(pause) if ends_when_idle else asyncio.sleep(pause))
            began = time.perf_counter()
            try:
                return step()
            finally:
                self._worked += time.perf_counter() - began

    async def wait_start(self) -> None:
        """Wait to begin work that cannot be divided: some callers at a time, each group once the loop is idle."""
        async with self._start:
            if self._started % STARTS_TOGETHER == 0:
                await _wait_idle(LONGEST_START_SECONDS)
            self._started += 1


async def _wait_idle(longest: float) -> None:
    """Until a turn of the loop, in which it also looks for data of sockets, has nothing else to do."""
    ends = time.perf_counter() + longest
    while (began := time.perf_counter()) < ends:
        for _ in range(2):
            await asyncio.sleep(0)
        if time.perf_counter() - began < IDLE_SECONDS:
            return
