"""Whether vLLM's engine core still makes progress: it answers calls between two steps, and a hung one never does."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

FRESH_SECONDS = 1.0
"""An answer as young as that is not asked for again."""
WAIT_SECONDS = 1.0
"""How long a probe waits for the answer to a call: between two short steps it comes at once."""
SILENT_SECONDS = 4.0
"""A call without an answer for longer means a core that does not make progress; a large step takes less."""


class CoreWatch:
    """Calls the core when it is probed, once at a time, and measures for how long a call has had no answer."""

    def __init__(
        self, call: Callable[[], Coroutine[Any, Any, object]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._call = call
        self._clock = clock
        self._pending: asyncio.Task[object] | None = None
        self._called_at = 0.0
        self._answered_at = float("-inf")

    async def find_fault(self) -> str:
        """Why the core is not healthy; empty where it is, and where this vLLM has no such call."""
        if self._pending is None:
            if self._clock() - self._answered_at < FRESH_SECONDS:
                return ""
            self._called_at = self._clock()
            self._pending = asyncio.create_task(self._call())
        # Of several probes that wait for one call, each has its answer.
        pending = self._pending
        await asyncio.wait([pending], timeout=WAIT_SECONDS)
        if not pending.done():
            silent = self._clock() - self._called_at
            return f"the engine core has not answered for {silent:.0f} s" if silent >= SILENT_SECONDS else ""
        if self._pending is pending:
            self._pending = None
        error = pending.exception()
        if error is None or isinstance(error, LookupError):
            self._answered_at = self._clock()
            return ""
        return f"the engine core failed: {str(error)[:500]}"
