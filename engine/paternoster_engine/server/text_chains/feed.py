"""What gateways read of the text index: a copy of the resident pieces, the last changes, and the readers."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import islice

from paternoster_contract.text_chains.stream import (
    HEARTBEAT_SECONDS,
    MAX_FRAME_PIECES,
    MAX_SUBSCRIBERS,
    VERSION,
    Changes,
    Heartbeat,
    Hello,
    encode_frame,
    encode_snapshot,
)

BATCH_SECONDS = 0.05
"""Changes of that long are sent together."""
MAX_REPLAY_BYTES = 4 * 2**20
"""Last changes that are kept for readers that connect again."""
LINGER_SECONDS = 600.0
"""Without a reader, after which texts are recorded no longer: a gateway that restarts finds them."""
MAX_UNREAD_BYTES = 8 * 2**20
"""Limit for one reader; one with more is closed, and begins with a snapshot again."""


class Subscriber:
    """What one reader has not been sent yet."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._unread = 0
        self._woken = asyncio.Event()
        self.closed = False

    def add_frame(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._unread += len(frame)
        if self._unread > MAX_UNREAD_BYTES:
            self.close()
        self._woken.set()

    def close(self) -> None:
        self.closed = True
        self._frames.clear()
        self._woken.set()

    async def next_frame(self) -> bytes:
        """What is there, after a pause of :data:`HEARTBEAT_SECONDS` nothing."""
        if not self._frames and not self.closed:
            self._woken.clear()
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                pass  # frames may have come between the end of the pause and now
        data = b"".join(self._frames)
        self._frames.clear()
        self._unread = 0
        return data


class TextChainFeed:
    """:meth:`publish` is for the engine's thread, everything else for the asyncio side."""

    def __init__(self, instance: str, model: str, *, isolates_tenants: bool, block_size: int) -> None:
        self._hello = Hello(
            version=VERSION,
            instance=instance,
            resumes=False,
            model=model,
            isolates_tenants=isolates_tenants,
            block_size=block_size,
        )
        self._asyncio_loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pending: dict[int, int] = {}
        self._pending_clear = self._scheduled = False
        self.resident: dict[int, int] = {}
        """Tokens by digest."""
        self.sequence = 0
        self.events_total = 0
        """Pieces that were reported as stored or removed."""
        self._replay: deque[bytes] = deque()
        self._replay_bytes = 0
        self._subscribers: set[Subscriber] = set()
        self._closed = False
        self.is_read = False
        """Whether there is a reader, or was one a moment ago: nothing is recorded for none."""
        self.on_read: Callable[[bool], object] = lambda _is_read: None
        """Called with each change of it."""
        self._lingering: asyncio.TimerHandle | None = None

    @property
    def num_subscribers(self) -> int:
        return len(self._subscribers)

    @property
    def accepts(self) -> bool:
        """Whether there is room for one more reader."""
        return not self._closed and len(self._subscribers) < MAX_SUBSCRIBERS

    def publish(self, cleared: bool, changed: dict[int, int]) -> None:
        """``changed``: tokens by digest, 0 for a piece that is gone; ``cleared``: after all were removed."""
        with self._lock:
            if cleared:
                self._pending, self._pending_clear = changed, True
            else:
                self._pending.update(changed)
            if self._scheduled:
                return
            self._scheduled = True
        try:
            self._asyncio_loop.call_soon_threadsafe(self._asyncio_loop.call_later, BATCH_SECONDS, self.flush)
        except RuntimeError:
            # The asyncio loop is closed: no reader is left.
            return

    def flush(self) -> None:
        """Send what was published."""
        with self._lock:
            cleared, changed = self._pending_clear, self._pending
            self._pending, self._pending_clear, self._scheduled = {}, False, False
        if cleared:
            self.resident.clear()
        stored = {digest: tokens for digest, tokens in changed.items() if tokens}
        removed = [digest for digest, tokens in changed.items() if not tokens and digest in self.resident]
        self.resident.update(stored)
        for digest in removed:
            del self.resident[digest]
        if not (cleared or stored or removed):
            return
        self.events_total += len(stored) + len(removed)
        items, first = iter(stored.items()), True
        while first or removed or stored:
            gone, removed = removed[:MAX_FRAME_PIECES], removed[MAX_FRAME_PIECES:]
            new = {} if removed else dict(islice(items, MAX_FRAME_PIECES - len(gone)))
            if not (first or gone or new):
                break
            self.sequence += 1
            self._send(encode_frame(Changes(self.sequence, new, gone, cleared and first)))
            first = False

    def _send(self, frame: bytes) -> None:
        self._replay.append(frame)
        self._replay_bytes += len(frame)
        while self._replay_bytes > MAX_REPLAY_BYTES:
            self._replay_bytes -= len(self._replay.popleft())
        for subscriber in self._subscribers:
            subscriber.add_frame(frame)

    async def subscribe(self, instance: str | None, after: int | None) -> AsyncGenerator[bytes]:
        """The stream of one reader; it is one from when the first frame is read until the stream is closed."""
        if not self.accepts:
            return
        last_read = after if instance == self._hello.instance else None
        oldest = self.sequence - len(self._replay)
        resumes = last_read is not None and oldest <= last_read <= self.sequence
        begin = [encode_frame(self._hello.model_copy(update={"resumes": resumes}))]
        if last_read is not None and resumes:
            begin += islice(self._replay, last_read - oldest, None)
            snapshot: Iterator[bytes] = iter(())
        else:
            snapshot = encode_snapshot(dict(self.resident), self.sequence)
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        if self._lingering is not None:
            self._lingering.cancel()
        self._set_read(True)
        try:
            yield b"".join(begin)
            for frame in snapshot:
                yield frame
            while not subscriber.closed:
                data = await subscriber.next_frame()
                if not subscriber.closed:
                    yield data or encode_frame(Heartbeat(self.sequence))
        finally:
            self._subscribers.discard(subscriber)
            if not self._subscribers and not self._closed:
                self._lingering = self._asyncio_loop.call_later(LINGER_SECONDS, self._set_read, False)

    def _set_read(self, is_read: bool) -> None:
        if self.is_read != is_read:
            self.is_read = is_read
            self.on_read(is_read)

    def close(self) -> None:
        """End all streams, and accept no more."""
        self._closed = True
        for subscriber in self._subscribers:
            subscriber.close()
