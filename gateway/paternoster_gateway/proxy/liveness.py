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
from types import TracebackType

from paternoster_contract.supervise import supervise_task
from paternoster_gateway.routing.limits import ANSWERED_SECONDS, PROBE_SECONDS, PROBES, QUIET_SECONDS

log = logging.getLogger(__name__)

LONGEST_PROBE_SECONDS = PROBES * PROBE_SECONDS
AGAIN_SECONDS = 1.0
"""Time between probes of a hung replica."""


class Wait:
    """A block that waits for bytes of a replica, and what the replica did until it ended.

    It raises ``TimeoutError`` once it is interrupted, by a cancellation of its task as ``asyncio.timeout`` does. Each
    frame of each stream enters one, and an asynchronous block with a timeout costs three times as much.
    """

    __slots__ = (
        "_cancelling", "_ended", "_interrupted", "_liveness", "_task", "answered", "began", "interruptible", "silent",
        "silent_before", "url",
    )  # fmt: skip

    def __init__(self, liveness: "Liveness", url: str, interruptible: bool) -> None:
        self.url = url
        self.interruptible = interruptible
        self.silent = False
        """Whether the replica left a probe unanswered when the wait ended."""
        self.answered = False
        """Whether the replica sent a byte :data:`ANSWERED_SECONDS` or more after the wait began."""
        self._liveness = liveness
        self._ended = self._interrupted = False

    def __enter__(self) -> "Wait":
        task = asyncio.current_task()
        assert task is not None, "only a task can wait"
        self._task = task
        self._cancelling = task.cancelling()
        self.began = time.monotonic()
        """Seconds of the monotonic clock."""
        self.silent_before = self._liveness.begin_wait(self)
        """Whether the replica left a probe unanswered when the wait began."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._liveness.end_wait(self, received=kind is None)
        if self._interrupted and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def interrupt_task(self) -> None:
        """End the wait, if it goes on."""
        if not (self._ended or self._interrupted):
            self._interrupted = True
            self._task.cancel()

    @property
    def read_by(self) -> float:
        """When a replica that then sends a byte has read what it was sent before the wait."""
        return self.began + ANSWERED_SECONDS


class Liveness:
    """Finds out which replicas, by URL, are hung, while requests wait for their bytes."""

    def __init__(
        self,
        healthy: Callable[[str, float], Awaitable[bool]],
        listed: Callable[[str], bool] = lambda _: True,
        on_hang: Callable[[str, float], object] = lambda _url, _last_heard: None,
        on_recovery: Callable[[str], object] = lambda _: None,
        on_quiet: Callable[[str], object] = lambda _: None,
    ) -> None:
        """``healthy`` probes a URL once, within a limit in seconds.

        A hung replica that is no longer ``listed`` is removed.
        ``on_hang`` is called with the URL of a replica that hangs and the time of its last byte, ``on_recovery`` with
        the URL of a replica that is hung no longer, ``on_quiet`` with that of a replica that owes no bytes any more.
        """
        self._healthy = healthy
        self._listed = listed
        self._on_hang = on_hang
        self._on_recovery = on_recovery
        self._on_quiet = on_quiet
        self._hung: set[str] = set()
        self._waiting: dict[str, set[Wait]] = {}
        self._quiet_since: dict[str, float] = {}
        self._last_byte: dict[str, float] = {}
        self._silent: set[str] = set()
        """URLs of replicas that left a probe unanswered since their last byte."""
        self._probing: dict[str, asyncio.Task[None]] = {}

    @property
    def hung(self) -> Collection[str]:
        """URLs, in a collection that changes with the state."""
        return self._hung

    def expect_bytes(self, url: str, *, interruptible: bool = False) -> Wait:
        """A block that waits for the next bytes of ``url``; raises ``TimeoutError`` in it once the replica is hung.

        ``interruptible``: also at :meth:`interrupt_waits`.
        """
        return Wait(self, url, interruptible)

    def interrupt_waits(self, url: str) -> None:
        """End the waits for bytes of ``url`` that allow it: there is something else to do with their streams."""
        for wait in self._waiting.get(url, ()):
            if wait.interruptible:
                wait.interrupt_task()

    def begin_wait(self, wait: Wait) -> bool:
        """Whether the replica left a probe unanswered; ``wait`` is interrupted as soon as it is hung."""
        url = wait.url
        self._waiting.setdefault(url, set()).add(wait)
        # A client that leaves early does not restart the period.
        self._quiet_since.setdefault(url, wait.began)
        if url not in self._probing:
            self._start_probing(url)
        if url in self._hung:
            asyncio.get_running_loop().call_soon(wait.interrupt_task)  # what has come already can still be read
            return True
        return url in self._silent

    def end_wait(self, wait: Wait, *, received: bool) -> None:
        """``received``: whether bytes have come, else the request waits for none any more."""
        url = wait.url
        wait.silent = url in self._silent or url in self._hung
        wait.answered = self._last_byte.get(url, 0.0) >= wait.read_by
        waiting = self._waiting[url]
        waiting.discard(wait)
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
        now = self._last_byte[url] = time.monotonic()
        if url in self._waiting:
            self._quiet_since[url] = now
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
        """Whether it answers one of :data:`PROBES`, each of which is waited for until the last one's time is over."""
        waiting: set[asyncio.Future[bool]] = set()
        try:
            for _ in range(PROBES):
                waiting.add(asyncio.ensure_future(self._healthy(url, LONGEST_PROBE_SECONDS)))
                done, waiting = await asyncio.wait(waiting, timeout=PROBE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if any(probe.result() for probe in done):
                    return True
                self._silent.add(url)
            return False
        finally:
            for probe in waiting:
                probe.cancel()

    async def _wait_until_recovered(self, url: str) -> None:
        """Fail the requests that wait for the replica, then probe until it answers or leaves the table."""
        log.warning("%s answers no probe: it gets no requests until it does", url)
        self._on_hang(url, self._last_byte.get(url, 0.0))
        self._hung.add(url)
        for wait in self._waiting.get(url, ()):
            wait.interrupt_task()
        while self._listed(url):
            await asyncio.sleep(AGAIN_SECONDS)
            if await self._healthy(url, PROBE_SECONDS):
                log.info("%s answers probes again", url)
                break
        self._hung.discard(url)
        self._on_recovery(url)
        self._record_byte(url)
