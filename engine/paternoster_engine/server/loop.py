"""The thread that owns the engine. Everything else sends commands to its inbox."""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast

from paternoster_engine.core.batch import StepOutput
from paternoster_engine.core.kv.cache_events import CacheEvent
from paternoster_engine.core.kv.text_index import TextIndex
from paternoster_engine.core.request import FinishReason, Request, RequestStatus
from paternoster_engine.core.text_piece import TextPiece
from paternoster_engine.engine import Engine

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")
Deliver = Callable[[StepOutput], None]
PublishEvents = Callable[[Sequence[CacheEvent]], None]
PublishTexts = Callable[[bool, dict[int, int]], None]
"""Whether every piece was removed first, and tokens by digest; 0 for a piece that is gone."""

IDLE_TICK = 1.0
"""Seconds between ticks when there is nothing to do, so that an idle loop differs from a hung step."""
EMPTY_STEP_PAUSE = 0.005
"""Seconds to wait after a step that computed nothing: it only preempted, or a batch is being put off."""
STOP_TIMEOUT = 5.0
"""Seconds that the end of the loop waits for the step under way."""


class Observer(Protocol):
    """Receives every step, its tokens and every request's end, in the engine's thread."""

    def record_step(self, num_tokens: int, seconds: float) -> None: ...

    def record_samples(self, outputs: Sequence[StepOutput], now: float) -> None: ...

    def record_end(self, request: Request) -> None: ...


class LoopStopped(RuntimeError):
    """The engine loop has ended and takes no more work."""

    def __init__(self) -> None:
        super().__init__("The engine has stopped. Please try again on a different instance.")


class EngineLoop:
    """Steps the engine while it has work and sleeps on the inbox while it has none.

    All methods are for the asyncio side. What one step gives reaches that side in one call.
    """

    def __init__(
        self,
        engine: Engine,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
        publish_events: PublishEvents | None = None,
        publish_texts: PublishTexts | None = None,
    ) -> None:
        """``clock``: the engine's own; requests are stamped with it.

        ``publish_events`` is called in the engine's thread with what a step changed in the prefix cache,
        ``publish_texts`` with what it changed in the index of texts.
        """
        self.engine = engine
        self._publish_events = publish_events
        self._publish_texts = publish_texts
        self.clock = clock
        self._observer = observer
        self._last_tick = clock()
        self._last_work: float | None = None
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._replies: list[Callable[[], object]] = []
        self._deliver: dict[str, Deliver] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine-loop", daemon=True)
        self._asyncio_loop: asyncio.AbstractEventLoop | None = None
        self.lost: asyncio.Future[str] | None = None
        """Once started: why the engine cannot go on, when that happens."""

    def start(self) -> None:
        """Start the thread; results go to the running asyncio loop."""
        self._asyncio_loop = asyncio.get_running_loop()
        self.lost = self._asyncio_loop.create_future()
        self._thread.start()

    async def stop(self) -> None:
        """End every request and the thread after the step under way; a step that hangs longer is left behind."""
        self._stopping = True
        self._inbox.put(lambda: None)
        await asyncio.to_thread(self._thread.join, STOP_TIMEOUT)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def last_tick_age(self) -> float:
        """Seconds since the loop last came round: small when healthy, busy or idle."""
        return max(0.0, self.clock() - self._last_tick)

    @property
    def idle_seconds(self) -> float | None:
        """Since it last had an online request; 0 while it has one, None where it had none yet."""
        if self.engine.scheduler.lanes[0].has_work:
            return 0.0
        return None if self._last_work is None else max(0.0, self.clock() - self._last_work)

    async def call_in_loop(self, function: Callable[[], T]) -> T:
        """Run ``function`` in the engine's thread between two steps and give its result."""
        return await self._send_command(function)

    def _send_command(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call ``function`` in the loop, as :meth:`call_in_loop`, whose result comes later."""
        if self._stopping or self._asyncio_loop is None:
            raise LoopStopped
        future: asyncio.Future[T] = self._asyncio_loop.create_future()

        def run_command() -> None:
            try:
                self._replies.append(partial(_settle_future, future, function(), None))
            except Exception as error:
                self._replies.append(partial(_settle_future, future, None, error))

        self._inbox.put(run_command)
        return future

    async def submit(self, requests: Sequence[Request], deliver: Deliver, *, following: Sequence[Request] = ()) -> None:
        """Queue all of ``requests`` or none; raises :class:`AdmissionError`. ``deliver`` gets each token and end.

        ``following``: others of the call, which are submitted later or settled.
        What another engine admitted can be refused for its size alone, and does not wait for the step under way.
        """
        for request in requests:
            self._deliver[request.request_id] = deliver
        try:
            scheduler = self.engine.scheduler
            goes_on = all(request.status is RequestStatus.PREEMPTED for request in requests)
            if goes_on:
                for request in requests:
                    scheduler.check_size(request)
            queued = self._send_command(partial(scheduler.add, *requests, following=following))
            if goes_on:
                queued.add_done_callback(partial(self._end_unqueued, requests))
            else:
                await queued
        except BaseException:
            self.abort(request.request_id for request in requests)
            raise

    def _end_unqueued(self, requests: Sequence[Request], queued: "asyncio.Future[None]") -> None:
        """End requests that could not be queued after all, as the engine's end does: another one may go on."""
        if not queued.cancelled() and (error := queued.exception()) is not None:
            log.error("requests that go on here could not be queued", exc_info=error)
            self._deliver_all([StepOutput(request, None, FinishReason.ABORT) for request in requests])

    def abort(self, request_ids: Iterable[str], reason: FinishReason = FinishReason.ABORT) -> None:
        """End these before the next step; nothing of them is delivered any more."""
        ids = [request_id for request_id in request_ids if self._deliver.pop(request_id, None) is not None]
        if ids:
            self._inbox.put(partial(self._end_requests, ids, reason))

    def settle_requests(self, requests: Iterable[Request]) -> None:
        """Return what is reserved for those of ``requests`` that have not ended, and will not be submitted."""
        self._inbox.put(partial(self._settle_requests, list(requests)))

    def _settle_requests(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.engine.scheduler.settle_request(request)

    def attach_text(self, request: Request, pieces: Sequence[TextPiece]) -> None:
        """Tie ``pieces``, which came with the request's answer, to its blocks, as far as they are cached."""
        self._inbox.put(partial(self.engine.scheduler.kv.attach_text, request, pieces))

    def record_texts(self, recording: bool) -> None:
        """Whether to record from which text cached blocks come, for requests that come later; ends with none."""
        self._inbox.put(partial(self._record_texts, recording))

    def _record_texts(self, recording: bool) -> None:
        kv = self.engine.scheduler.kv
        kv.pool.text_index = TextIndex(kv.groups, kv.pool.find_block) if recording else None
        if self._publish_texts is not None and not recording:
            self._publish_texts(True, {})

    def _run(self) -> None:
        scheduler = self.engine.scheduler
        pause, unchecked = IDLE_TICK, False
        while not self._stopping and self.engine.fault is None:
            self._last_tick = self.clock()
            woken = self._take_commands(pause)
            if scheduler.has_work:
                online = scheduler.lanes[0].has_work
                pause, unchecked = self._step(), True
                if online:
                    self._last_work = self.clock()
            else:
                pause = IDLE_TICK
                if unchecked and not woken:
                    self._check_integrity()
                    unchecked = False
            self._publish_cache_events()
        fault = self.engine.fault
        self._stopping = True
        self._take_commands(0.0)
        self._end_all(FinishReason.ABORT if fault is None else FinishReason.ERROR)
        if fault is not None and self.lost is not None:
            self._to_asyncio(self.lost.set_result, fault)

    def _publish_cache_events(self) -> None:
        recorded = self.engine.scheduler.pool.events
        if self._publish_events is not None and recorded is not None and (events := recorded.drain()):
            self._publish_events(events)
        index = self.engine.scheduler.pool.text_index
        if self._publish_texts is not None and index is not None and index.has_changes:
            self._publish_texts(*index.drain())

    def _take_commands(self, pause: float) -> bool:
        """Run what is in the inbox, waiting up to ``pause`` seconds for the first; replies go out together."""
        woken = False
        try:
            command = self._inbox.get(timeout=pause) if pause > 0 else self._inbox.get_nowait()
            while True:
                woken = True
                command()
                command = self._inbox.get_nowait()
        except queue.Empty:
            pass
        if self._replies:
            self._publish_cache_events()
            replies, self._replies = self._replies, []
            self._to_asyncio(_call_each, replies)
        return woken

    def _step(self) -> float:
        """One step; how long to wait for commands after it."""
        scheduler = self.engine.scheduler
        started, computed = self.clock(), scheduler.num_computed
        try:
            outputs = self.engine.step()
        except Exception:
            log.exception("the engine failed outside of the model; all requests end with an error")
            self._end_all(FinishReason.ERROR)
            return 0.0
        now, num_tokens = self.clock(), scheduler.num_computed - computed
        # Of a step that was planned ahead, the tokens come with the call after it.
        if num_tokens > 0:
            self._observer.record_step(num_tokens, now - started)
        self._observer.record_samples(outputs, now)
        for output in outputs:
            if output.finish_reason is not None:
                self._observer.record_end(output.request)
        if outputs:
            self._publish_cache_events()  # first: a client that has its answer finds its blocks in a replay
            self._to_asyncio(self._deliver_all, outputs)
        return 0.0 if num_tokens > 0 or outputs else EMPTY_STEP_PAUSE

    def _end_requests(self, request_ids: Iterable[str], reason: FinishReason) -> list[Request]:
        ended = [self.engine.scheduler.abort(request_id, reason) for request_id in request_ids]
        requests = [request for request in ended if request is not None]
        for request in requests:
            self._observer.record_end(request)
        return requests

    def _end_all(self, reason: FinishReason) -> None:
        ended = self._end_requests([request.request_id for request in self.engine.scheduler.list_requests()], reason)
        if ended:
            self._to_asyncio(self._deliver_all, [StepOutput(request, None, reason) for request in ended])

    def _deliver_all(self, outputs: Sequence[StepOutput]) -> None:
        for output in outputs:
            request_id = output.request.request_id
            deliver = self._deliver.get(request_id)
            if output.finish_reason is not None:
                self._deliver.pop(request_id, None)
            if deliver is not None:
                deliver(output)

    def _to_asyncio(self, function: Callable[[A], object], argument: A) -> None:
        assert self._asyncio_loop is not None
        try:
            self._asyncio_loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            # The asyncio loop is closed: no client is left.
            self._stopping = True

    def _check_integrity(self) -> None:
        try:
            self.engine.scheduler.check_integrity()
        except AssertionError:
            log.exception("blocks or requests are not where they should be although nothing runs; this is a bug")


def _settle_future(future: "asyncio.Future[T]", result: T | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(cast(T, result))
    else:
        future.set_exception(error)


def _call_each(functions: Iterable[Callable[[], object]]) -> None:
    for function in functions:
        function()
