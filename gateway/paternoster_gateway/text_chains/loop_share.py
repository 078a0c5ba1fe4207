"""A bounded part of the event loop for work that a stranger sends."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

LEAST_SECONDS = 0.001
"""Of work between two pauses."""
PAUSE = 2.0
"""Times as long as the work before it: a third of the loop is for the work."""
T = TypeVar("T")


class LoopShare:
    """Runs steps one at a time, first come first served, with pauses."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._worked = 0.0

    async def run(self, step: Callable[[], T]) -> T:
        """The result of ``step``; raises what it raises."""
        async with self._turn:
            if self._worked >= LEAST_SECONDS:
                pause, self._worked = PAUSE * self._worked, 0.0
                await asyncio.sleep(pause)
            began = time.perf_counter()
            try:
                return step()
            finally:
                self._worked += time.perf_counter() - began
