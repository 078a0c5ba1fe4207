"""The work queue: keys to look at, each handled by one worker at a time.

As client-go's workqueue: a key added ten times is handled once, a key added while it is handled is handled again
afterwards, and a key that fails comes back with exponential backoff. Keys whose time has come take turns with those
that are requested, and of each kind the groups do, such as namespaces: one with a thousand delays another's by two.
"""

import asyncio
import heapq
import itertools
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from paternoster_contract.error_text import error_text
from paternoster_contract.supervise import supervise_task

K = TypeVar("K")

log = logging.getLogger(__name__)

REQUESTED, SCHEDULED = "requested", "scheduled"
QUEUED_KINDS = (REQUESTED, SCHEDULED)
"""Why a key is due: something about it changed, or its time has come."""
FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 10.0
"""A key costs no more than one that is looked at every few seconds, and does not wait long after an outage."""


class RoundRobin(Generic[K]):
    """Entries by group, first in, first out within one; groups take turns."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, deque[tuple[float, K]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, group: Hashable, due: float, key: K) -> None:
        self._groups.setdefault(group, deque()).append((due, key))

    def pop(self) -> tuple[float, K]:
        """The first entry of the group whose turn it is."""
        group, entries = self._groups.popitem(last=False)
        first = entries.popleft()
        if entries:
            self._groups[group] = entries
        return first


class WorkQueue(Generic[K]):
    """``handle(key)`` returns the seconds until it wants to see the key again, or None; raising means: again later."""

    def __init__(
        self,
        handle: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 4,
        clock: Callable[[], float] = time.monotonic,
        group: Callable[[K], Hashable] = lambda _: None,
        observe: Callable[[str, float], None] = lambda _kind, _seconds: None,
    ) -> None:
        """``observe`` is called as a key's turn comes, with one of :data:`QUEUED_KINDS` and how long it was due.

        An exception of ``handle`` with ``retry_after_seconds`` is a server's answer, which delays its key by that at
        least, and is logged without a traceback: a server that is away fails every key at once.
        """
        self._observe = observe
        self._handle = handle
        self._group = group
        self._workers = workers
        self._clock = clock
        self._due: dict[K, float] = {}
        """When each queued key is due; the earliest of all requests for it."""
        self._requested_at: dict[K, float] = {}
        """Since when a key is to be seen as soon as possible."""
        self._heap: list[tuple[float, int, K]] = []
        """Keys that are not due yet. Here and in the next two, an entry whose time is not that in ``_due`` is void."""
        self._requested: RoundRobin[K] = RoundRobin()
        self._overdue: RoundRobin[K] = RoundRobin()
        self._turns = deque([self._requested, self._overdue])
        """The one whose turn it is first."""
        self._order = itertools.count()
        self._busy: set[K] = set()
        self._again: dict[K, float] = {}
        """Keys asked for while busy, and when they are due."""
        self._failures: dict[K, int] = {}
        self._changed, self._done = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._started_at = clock()

    def __len__(self) -> int:
        return len(self._due) + len(self._again)

    def add(self, key: K) -> None:
        """See ``key`` as soon as possible: at half of the turns before all that is merely due."""
        self.add_after(key, float("-inf"))

    def add_after(self, key: K, seconds: float) -> None:
        """See ``key`` in ``seconds`` at the latest."""
        due = self._clock() + seconds
        if due == float("-inf"):
            self._requested_at.setdefault(key, self._clock())
        if key in self._busy:
            self._again[key] = min(due, self._again.get(key, due))
        elif key not in self._due or due < self._due[key]:
            self._due[key] = due
            if due == float("-inf"):
                self._requested.add(self._group(key), due, key)
            else:
                heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.set()

    def find_longest_wait(self, kind: str) -> float:
        """Seconds that the key of ``kind`` has been due that waits longest; 0 where none waits or no worker runs."""
        now = self._clock()
        if not self._tasks:
            return 0.0
        if kind == REQUESTED:
            since = min(self._requested_at.values(), default=now)
        else:
            since = min((due for due in self._due.values() if float("-inf") < due <= now), default=now)
        return now - max(since, self._started_at)

    def start(self) -> None:
        """Begin to handle keys; those that were added before wait from now on."""
        self._started_at = self._clock()
        self._tasks = [supervise_task(self._run_worker, "work-queue") for _ in range(self._workers)]

    async def stop(self) -> None:
        """Cancel the workers and wait for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def wait_until_done(self, which: Callable[[K], bool]) -> None:
        """Return once no worker handles a key of ``which``."""
        while any(which(key) for key in self._busy):
            self._done.clear()
            await self._done.wait()

    @property
    def alive(self) -> bool:
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    async def _run_worker(self) -> None:
        while True:
            key = await self._next_key()
            try:
                again = await self._handle(key)
                self._failures.pop(key, None)
            except Exception as error:
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                backoff = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 30), LONGEST_BACKOFF_SECONDS)
                pause: float | None = getattr(error, "retry_after_seconds", None)
                again = max(backoff, pause or 0.0)
                if failures & (failures - 1) == 0:  # a power of two: one that fails for hours is logged a dozen times
                    words = (key, failures, again, error_text(error))
                    log.error("%s failed %d times; again in %.0f s: %s", *words, exc_info=pause is None)
            finally:
                self._busy.discard(key)
                self._done.set()
            due = self._again.pop(key, None)
            if due is not None:
                self.add_after(key, due - self._clock())
            if again is not None:
                self.add_after(key, again)

    async def _next_key(self) -> K:
        """Wait for the next due key and mark it busy."""
        while True:
            key = self._next_due()
            if key is not None:
                self._busy.add(key)
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(self._heap[0][0] - self._clock() if self._heap else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _next_due(self) -> K | None:
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                self._overdue.add(self._group(key), due, key)
        for entries in tuple(self._turns):
            while entries:
                due, key = entries.pop()
                if self._due.get(key) == due:
                    self._turns.remove(entries)
                    self._turns.append(entries)
                    del self._due[key]
                    requested_at = self._requested_at.pop(key, None)
                    since = due if requested_at is None else requested_at
                    self._observe(SCHEDULED if requested_at is None else REQUESTED, now - max(since, self._started_at))
                    return key
        return None
