"""Background tasks that do not end unseen: a failure is logged, counted and, by default, tried again.

asyncio does not report the exception of a task that no other awaits: the work of the task just stops.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""Work that went on for so long is forgiven its earlier failures."""

failures: Counter[str] = Counter()
"""Unexpected ends of this process's tasks by name, for a metric."""


def supervise_task(
    work: Callable[[], Coroutine[Any, Any, None]], name: str, *, again: bool = True
) -> asyncio.Task[None]:
    """Begin ``work()``; the task ends when the work returns or the task is cancelled.

    Work that raises begins anew with backoff; without ``again`` the task raises what it raised.
    """
    failures[name] += 0  # a series that appears with its first event hides that event from rate()
    return asyncio.create_task(_keep_up(work, name, again), name=name)


async def _keep_up(work: Callable[[], Coroutine[Any, Any, None]], name: str, again: bool) -> None:
    short_runs = 0
    while True:
        started = time.monotonic()
        try:
            await work()
            return
        except Exception:
            failures[name] += 1
            if not again:
                log.exception("the task %r failed", name)
                raise
            short_runs = 0 if time.monotonic() - started >= STEADY_SECONDS else short_runs
            delay = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(short_runs, 30), LONGEST_BACKOFF_SECONDS)
            log.exception("the task %r failed; again in %g s", name, delay)
        await asyncio.sleep(delay)
        short_runs += 1
