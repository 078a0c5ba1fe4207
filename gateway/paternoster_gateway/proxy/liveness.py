"""Whether a replica that sends nothing is busy or hung: the gateway probes it.

A first token may take minutes behind a long queue, and none may come while prompts of other requests are computed, so
no answer is limited in time. Instead the gateway probes a replica that owes bytes and has sent none for a moment, and
repeats the probe while the replica stays quiet. A replica that answers no probe, or reports that its engine stands
still, is hung: requests that wait for its bytes fail, and it gets no others until it answers a probe again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from types import TracebackType

from paternoster_contract.supervise import supervise_task

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""Time without a byte from a replica that owes some, after which the gateway probes it."""
PROBE_SECONDS = 2.2
"""Limit for the answer to a probe. A healthy engine takes milliseconds, on a machine with too few cores a second."""
PROBES = 3
"""Probes without an answer, one after another, until a replica is hung: two may be lost on a busy machine."""
AGAIN_SECONDS = 1.0
"""Time between probes of a hung replica."""
ANSWERED_SECONDS = 2.0
"""Time from sending a body until a replica that then sends a byte has received, read and checked it."""


@dataclass(slots=True)
class Wait:
    """One wait for bytes of a replica, and what the replica did until the wait ended."""

    began: float
    """Seconds of the monotonic clock."""
    silent_before: bool
    """Whether the replica left a probe unanswered when the wait began."""
    silent: bool = False
    """Whether the replica left a probe unanswered when the wait ended."""
    answered: bool = False
    """Whether the replica sent a byte :data:`ANSWERED_SECONDS` or more after the wait began."""

    @property
    def read_by(self) -> float:
        """When a replica that then sends a byte has read what it was sent before the wait."""
        return self.began + ANSWERED_SECONDS


class ByteWait:
    """The block of :meth:`Liveness.expect_bytes`: a class, since each frame of each stream enters one."""

    __slots__ = ("_interruptible", "_limit", "_liveness", "_url", "_wait")

    def __init__(self, liveness: "Liveness", url: str, interruptible: bool) -> None:
        self._liveness = liveness
        self._url = url
        self._interruptible = interruptible

    async def __aenter__(self) -> Wait:
        self._limit = asyncio.timeout(0 if self._url in self._liveness.hung else None)
        await self._limit.__aenter__()
        self._wait = self._liveness.begin_wait(self._url, self._limit, self._interruptible)
        return self._wait

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._liveness.end_wait(self._url, self._limit, self._wait, received=kind is None)
        await self._limit.__aexit__(kind, error, traceback)


class Liveness:
    """Finds out which replicas, by URL, are hung, while requests wait for their bytes."""

    def __init__(
        self,
        healthy: Callable[[str], Awaitable[bool]],
        listed: Callable[[str], bool] = lambda _: True,
        on_hang: Callable[[str, float], object] = lambda _url, _last_heard: None,
        on_recovery: Callable[[str], object] = lambda _: None,
        on_quiet: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``healthy`` probes a URL once; a hung replica that is no longer ``listed`` is removed.

        ``on_hang`` is called with the URL of a replica that hangs and the time of its last byte, ``on_recovery`` with
        the URL of a replica that is hung no longer, ``on_quiet`` with that of a replica that owes no bytes any more.
        """
        self._healthy = healthy
        self._listed = listed
        self._on_hang = on_hang
        self._on_recovery = on_recovery
        self._on_quiet = on_quiet
        self._hung: set[str] = set()
        self._waiting: dict[str, dict[asyncio.Timeout, bool]] = {}
        """By URL; and whether the wait may be interrupted."""
        self._quiet_since: dict[str, float] = {}
        self._last_byte: dict[str, float] = {}
        self._silent: set[str] = set()
        """URLs of replicas that left a probe unanswered since their last byte."""
        self._probing: dict[str, asyncio.Task[None]] = {}

    @property
    def hung(self) -> Collection[str]:
        """URLs, in a collection that changes with the state."""
        return self._hung

    def expect_bytes(self, url: str, *, interruptible: bool = False) -> "ByteWait":
        """A block that waits for the next bytes of ``url``; raises ``TimeoutError`` in it once the replica is hung.

        ``interruptible``: also at :meth:`interrupt_waits`.
        """
        return ByteWait(self, url, interruptible)

    def interrupt_waits(self, url: str) -> None:
        """End the waits for bytes of ``url`` that allow it: there is something else to do with their streams."""
        for limit, interruptible in self._waiting.get(url, {}).items():
            if interruptible:
                _end_wait(limit)

    def begin_wait(self, url: str, limit: asyncio.Timeout, interruptible: bool) -> Wait:
        """A request waits for bytes of ``url``: ``limit`` ends as soon as the replica is hung."""
        self._waiting.setdefault(url, {})[limit] = interruptible
        now = time.monotonic()
        # A client that leaves early does not restart the period.
        self._quiet_since.setdefault(url, now)
        if url not in self._probing:
            self._start_probing(url)
        return Wait(now, url in self._silent or url in self._hung)

    def end_wait(self, url: str, limit: asyncio.Timeout, wait: Wait, *, received: bool) -> None:
        """``received``: whether bytes have come, else the request waits for none any more."""
        wait.silent = url in self._silent or url in self._hung
        wait.answered = self._last_byte.get(url, 0.0) >= wait.read_by
        waiting = self._waiting[url]
        waiting.pop(limit, None)
        if not waiting:
            del self._waiting[url]
        if received:
            self._record_byte(url)

    async def close(self) -> None:
        """End all probes."""
        probing = list(self._probing.values())
        for task in probing:
            task.cancel()
        await asyncio.gather(*probing, return_exceptions=True)

    def _record_byte(self, url: str) -> None:
        if url in self._hung:
            return  # it had sent the byte before it hung
        self._silent.discard(url)
        self._last_byte[url] = time.monotonic()
        if url in self._waiting:
            self._quiet_since[url] = time.monotonic()
        else:
            self._quiet_since.pop(url, None)

    def _start_probing(self, url: str) -> None:
        task = self._probing[url] = supervise_task(lambda: self._probe_while_quiet(url), "probe-replicas")

        def remove(_: asyncio.Task[None]) -> None:
            self._probing.pop(url, None)
            self._quiet_since.pop(url, None)
            self._hung.discard(url)
            self._silent.discard(url)
            self._last_byte.pop(url, None)
            self._on_quiet(url)

        task.add_done_callback(remove)

    async def _probe_while_quiet(self, url: str) -> None:
        """Probe until no request waits for the replica, or it is hung and no longer in the table."""
        while (since := self._quiet_since.get(url)) is not None:
            if (left := since + QUIET_SECONDS - time.monotonic()) > 0:
                await asyncio.sleep(left)
            elif await self._answers_probe(url):
                self._record_byte(url)
            elif self._quiet_since.get(url) == since:
                await self._wait_until_recovered(url)

    async def _answers_probe(self, url: str) -> bool:
        for _ in range(PROBES):
            if await self._healthy(url):
                return True
            self._silent.add(url)
        return False

    async def _wait_until_recovered(self, url: str) -> None:
        """Fail the requests that wait for the replica, then probe until it answers or leaves the table."""
        log.warning("%s answers no probe: it gets no requests until it does", url)
        self._on_hang(url, self._last_byte.get(url, 0.0))
        self._hung.add(url)
        for limit in self._waiting.get(url, ()):
            _end_wait(limit)
        while self._listed(url):
            await asyncio.sleep(AGAIN_SECONDS)
            if await self._healthy(url):
                log.info("%s answers probes again", url)
                break
        self._hung.discard(url)
        self._on_recovery(url)
        self._record_byte(url)


def _end_wait(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())
