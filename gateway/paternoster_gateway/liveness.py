"""Whether a replica that sends nothing is at work or stands still: it is asked at its health probe.

A first token may take minutes behind a long queue, and none may come while prompts of others are computed. So no answer
is limited in time. A replica of which no request has heard for a moment is probed instead, as often as it stays quiet;
one that answers no probe, or says that its engine stands still, is hung: who waits for it is told, and it is left alone
until it answers a probe again.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from paternoster_contract.supervise import supervise

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""Without a byte from a replica that owes some: then it is probed."""
PROBE_SECONDS = 2.5
"""For the answer to a probe. A healthy engine takes milliseconds, on a machine with far too few cores a second."""
PROBES = 3
"""Without an answer, one after another, until a replica is hung: two may be lost where processors are short."""
AGAIN_SECONDS = 1.0
"""Between probes of a replica that is hung."""
ANSWERED_SECONDS = 2.0
"""After which a replica that is heard has read and checked what it was sent before: a body is on its way for part."""


@dataclass(slots=True)
class Wait:
    """A block that waits for a replica's bytes; once that has failed, what the replica did meanwhile."""

    began: float
    """Of the monotonic clock."""
    silent_before: bool
    """Whether the replica answered no probe when it began."""
    silent: bool = False
    """Whether it answered no probe when it ended."""
    answered: bool = False
    """Whether the replica was heard :data:`ANSWERED_SECONDS` after it began."""

    def answered_by(self, last_heard: float) -> bool:
        return last_heard >= self.began + ANSWERED_SECONDS


class Liveness:
    """Which replicas, by URL, are hung, from what those hear who wait for them."""

    def __init__(
        self,
        healthy: Callable[[str], Awaitable[bool]],
        listed: Callable[[str], bool] = lambda _: True,
        on_hang: Callable[[str, float], object] = lambda _url, _last_heard: None,
        on_recovery: Callable[[str], object] = lambda _: None,
        on_quiet: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``healthy`` probes a URL once; a hung replica is forgotten when it is not ``listed`` any more.

        ``on_hang`` is called with the URL of a replica that is hung and when it was last heard, ``on_recovery`` with
        that of one that is hung no longer, ``on_quiet`` with that of one that owes nothing any more.
        """
        self._healthy = healthy
        self._listed = listed
        self._on_hang = on_hang
        self._on_recovery = on_recovery
        self._on_quiet = on_quiet
        self._hung: set[str] = set()
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self._quiet_since: dict[str, float] = {}
        self._last_heard: dict[str, float] = {}
        self._silent: set[str] = set()
        """URLs of those that left a probe without an answer since they were heard."""
        self._watching: dict[str, asyncio.Task[None]] = {}

    @property
    def hung(self) -> Collection[str]:
        """URLs; always the present ones."""
        return self._hung

    @asynccontextmanager
    async def expecting(self, url: str) -> AsyncIterator[Wait]:
        """A block that waits for the next bytes from ``url``; raises ``TimeoutError`` in it once that is hung."""
        async with asyncio.timeout(0 if url in self._hung else None) as limit:
            waiting = self._waiting.setdefault(url, set())
            waiting.add(limit)
            # Clients that soon lose patience do not begin it anew.
            self._quiet_since.setdefault(url, time.monotonic())
            if url not in self._watching:
                self._watch(url)
            wait = Wait(time.monotonic(), url in self._silent or url in self._hung)
            heard = False
            try:
                yield wait
                heard = True
            finally:
                wait.silent = url in self._silent or url in self._hung
                wait.answered = wait.answered_by(self._last_heard.get(url, 0.0))
                waiting.discard(limit)
                if not waiting:
                    self._waiting.pop(url, None)
                if heard:
                    self._heard(url)

    async def close(self) -> None:
        """End all probes."""
        watching = list(self._watching.values())
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    def _heard(self, url: str) -> None:
        if url in self._hung:
            return  # what it had sent before
        self._silent.discard(url)
        self._last_heard[url] = time.monotonic()
        if url in self._waiting:
            self._quiet_since[url] = time.monotonic()
        else:
            self._quiet_since.pop(url, None)

    def _watch(self, url: str) -> None:
        task = self._watching[url] = supervise(lambda: self._probe_while_quiet(url), "probe-replicas")

        def ended(_: asyncio.Task[None]) -> None:
            self._watching.pop(url, None)
            self._quiet_since.pop(url, None)
            self._hung.discard(url)
            self._silent.discard(url)
            self._last_heard.pop(url, None)
            self._on_quiet(url)

        task.add_done_callback(ended)

    async def _probe_while_quiet(self, url: str) -> None:
        """Until nobody waits for it, or it is hung and gone from the table."""
        while (since := self._quiet_since.get(url)) is not None:
            if (left := since + QUIET_SECONDS - time.monotonic()) > 0:
                await asyncio.sleep(left)
            elif await self._answers(url):
                self._heard(url)
            elif self._quiet_since.get(url) == since:
                await self._out(url)

    async def _answers(self, url: str) -> bool:
        for _ in range(PROBES):
            if await self._healthy(url):
                return True
            self._silent.add(url)
        return False

    async def _out(self, url: str) -> None:
        """Tell who waits, then wait until it answers again or is gone."""
        log.warning("%s answers no probe: it is left until it does", url)
        self._on_hang(url, self._last_heard.get(url, 0.0))
        self._hung.add(url)
        for limit in self._waiting.get(url, ()):
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        while self._listed(url):
            await asyncio.sleep(AGAIN_SECONDS)
            if await self._healthy(url):
                log.info("%s answers probes again", url)
                break
        self._hung.discard(url)
        self._on_recovery(url)
        self._heard(url)
