"""In vLLM's API server: ``GET /text-chains``, the stream by which gateways read what the prefix cache has."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from paternoster_contract.text_chains.stream import (
    HEARTBEAT_SECONDS,
    MAX_SUBSCRIBERS,
    MEDIA_TYPE,
    VERSION,
    Changes,
    Frame,
    FrameReader,
    Heartbeat,
    Hello,
    Snapshot,
    encode_frame,
    encode_snapshot,
)
from paternoster_vllm.asgi import RETRY_AFTER, Receive, Scope, Send, error_body, send_error, send_json
from paternoster_vllm.engine_core import Unsupported
from paternoster_vllm.text_chains.block_watch import Replay

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.25
"""Between two calls of the engine core, and between two looks of a reader at what they brought."""
LINGER_SECONDS = 600.0
"""Without a reader, after which no more texts are recorded: a gateway that restarts finds them."""
ReadChains = Callable[[str, int], Awaitable[dict[str, Any]]]
"""The changes behind a number of an instance, by :func:`paternoster_vllm.text_chains.block_watch.read_text_chains`."""


class ReadTexts:
    """What this process has read of one instance of the engine core's record."""

    def __init__(self, instance: str = "", block_size: int = 0) -> None:
        self.instance = instance
        self.block_size = block_size
        self.replay = Replay()
        self._pieces: dict[int, int] = {}
        """Tokens by digest."""

    def apply(self, frame: Frame) -> None:
        if isinstance(frame, Snapshot):
            self._pieces.update(frame.stored)
            self.replay = Replay(frame.sequence)
        elif isinstance(frame, Changes):
            if frame.cleared:
                self._pieces.clear()
            for digest in frame.removed:
                self._pieces.pop(digest, None)
            self._pieces.update(frame.stored)
            self.replay.add_changes(frame)

    def encode_pieces(self) -> Iterable[bytes]:
        """A snapshot, which later changes do not alter."""
        return encode_snapshot(dict(self._pieces), self.replay.sequence)


class TextChainPublisher:
    """Reads what the engine core records by one call at a time, and gives it to any number of readers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._num_readers = 0
        self._left_at = float("-inf")
        self._texts = ReadTexts()
        self._starting = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    def is_read(self) -> bool:
        """Whether there is a reader, or was one a moment ago: nothing is recorded for none."""
        return self._num_readers > 0 or self._clock() - self._left_at < LINGER_SECONDS

    async def answer_request(self, scope: Scope, receive: Receive, send: Send, model: str, read: ReadChains) -> None:
        """One request, and the whole stream; ``model``: the first served name."""
        if self._num_readers >= MAX_SUBSCRIBERS:
            text = f"text chains have at most {MAX_SUBSCRIBERS} readers"
            await send_json(send, 503, error_body(text), (RETRY_AFTER, b"5"))
            return
        self._num_readers += 1
        try:
            try:
                await self._start_following(read)
            except Exception as error:  # as where the engine core did not load the plugin
                log.warning("paternoster_vllm: text chains are not published: %s", str(error)[:500])
                await send_error(send, 404, f"this vLLM keeps no text chains: {str(error)[:500]}")
                return
            server = getattr(scope["app"].state, "server", None)
            await self._send_stream(receive, send, model, *_read_query(scope), lambda: _is_ending(server))
        finally:
            self._num_readers -= 1
            self._left_at = self._clock()

    async def _start_following(self, read: ReadChains) -> None:
        async with self._starting:
            if not self._is_following():
                await self._read_changes(read)
                self._following = asyncio.create_task(self._follow(read))

    def _is_following(self) -> bool:
        return self._following is not None and not self._following.done()

    async def _follow(self, read: ReadChains) -> None:
        """Until no reader is left for long, or the core fails."""
        try:
            while self.is_read():
                await asyncio.sleep(PAUSE_SECONDS)
                await self._read_changes(read)
        except Exception as error:  # the core's own fault, in its words
            log.warning("paternoster_vllm: text chains end: %s", str(error)[:500])

    async def _read_changes(self, read: ReadChains) -> None:
        """Raises :class:`Unsupported`, or what vLLM raises where the core does not answer."""
        texts = self._texts
        found = await read(texts.instance, texts.replay.sequence)
        if "unsupported" in found:
            raise Unsupported(found["unsupported"])
        if not found["resumes"]:
            texts = ReadTexts(found["instance"], found["block_size"])
        for frame in FrameReader().feed(found["frames"]):
            texts.apply(frame)
            await asyncio.sleep(0)  # requests go on meanwhile
        self._texts = texts

    async def _send_stream(
        self, receive: Receive, send: Send, model: str, instance: str, after: int, is_ending: Callable[[], bool]
    ) -> None:
        """Until the reader leaves, the server ends, or what the reader lacks is not known any more."""

        async def send_part(data: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        texts = self._texts
        resumes = instance == texts.instance and texts.replay.has_after(after)
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        leaving = asyncio.create_task(_wait_for_leave(receive))
        sent, silent = after if resumes else texts.replay.sequence, 0.0
        snapshot = () if resumes else texts.encode_pieces()
        try:
            await send_part(_encode_hello(texts, model, resumes=resumes))
            for frame in snapshot:
                await send_part(frame)
                await asyncio.sleep(0)
            while texts is self._texts and self._is_following() and texts.replay.has_after(sent) and not is_ending():
                if texts.replay.sequence > sent or silent >= HEARTBEAT_SECONDS - PAUSE_SECONDS:
                    data, sent = texts.replay.list_after(sent), texts.replay.sequence
                    await send_part(data or encode_frame(Heartbeat(sent)))
                    silent = 0.0
                await asyncio.wait([leaving], timeout=PAUSE_SECONDS)
                silent += PAUSE_SECONDS
                if leaving.done():
                    return
        finally:
            leaving.cancel()
        await send_part(b"", more=False)


def _read_query(scope: Scope) -> tuple[str, int]:
    """Instance and number of the last changes that a reader has; of no instance where it names none."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=8)
    instance, after = query.get("instance", [""])[0], query.get("after", [""])[0]
    is_whole = len(after) <= 19 and after.isascii() and after.isdigit()
    return (instance[:64], int(after)) if is_whole else ("", 0)


def _encode_hello(texts: ReadTexts, model: str, *, resumes: bool) -> bytes:
    return encode_frame(
        Hello(
            version=VERSION, instance=texts.instance, resumes=resumes, model=model, isolates_tenants=False,
            block_size=texts.block_size,
        )
    )  # fmt: skip


def _is_ending(server: Any) -> bool:
    """Whether uvicorn waits for its connections to end."""
    return bool(getattr(server, "should_exit", False))


async def _wait_for_leave(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
