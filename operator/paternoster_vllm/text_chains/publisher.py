"""In vLLM's API server: ``GET /text-chains``, the stream by which gateways read what the prefix cache has."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from paternoster_contract.text_chains.stream import (
    HEARTBEAT_SECONDS,
    MAX_SUBSCRIBERS,
    MEDIA_TYPE,
    VERSION,
    Heartbeat,
    Hello,
    encode_frame,
)
from paternoster_vllm.asgi import RETRY_AFTER, Receive, Scope, Send, error_body, send_error, send_json

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.25
"""Between two calls of the engine core for one reader."""
LINGER_SECONDS = 600.0
"""Without a reader, after which no more texts are recorded: a gateway that restarts finds them."""

ReadChains = Callable[[str, int], Awaitable[dict[str, Any]]]
"""The changes behind a number of an instance, by :func:`paternoster_vllm.text_chains.block_watch.read_text_chains`."""


class TextChainPublisher:
    """Relays what the engine core records to each reader, and no more than a call at a time for one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._num_readers = 0
        self._left_at = float("-inf")

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
                first = await read(*_read_query(scope))
            except Exception as error:  # as where the engine core did not load the plugin
                first = {"unsupported": str(error)[:500]}
            if "unsupported" in first:
                log.warning("paternoster_vllm: text chains are not published: %s", first["unsupported"])
                await send_error(send, 404, f"this vLLM keeps no text chains: {first['unsupported']}")
                return
            server = getattr(scope["app"].state, "server", None)
            await _send_stream(receive, send, _encode_hello(first, model), first, read, lambda: _is_ending(server))
        finally:
            self._num_readers -= 1
            self._left_at = self._clock()


def _read_query(scope: Scope) -> tuple[str, int]:
    """Instance and number of the last changes that a reader has; of no instance where it names none."""
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=8)
    instance, after = query.get("instance", [""])[0], query.get("after", [""])[0]
    is_whole = len(after) <= 19 and after.isascii() and after.isdigit()
    return (instance[:64], int(after)) if is_whole else ("", 0)


def _encode_hello(first: dict[str, Any], model: str) -> bytes:
    return encode_frame(
        Hello(
            version=VERSION, instance=first["instance"], resumes=first["resumes"], model=model, isolates_tenants=False,
            block_size=first["block_size"],
        )
    )  # fmt: skip


def _is_ending(server: Any) -> bool:
    """Whether uvicorn waits for its connections to end."""
    return bool(getattr(server, "should_exit", False))


async def _send_stream(
    receive: Receive, send: Send, hello: bytes, first: dict[str, Any], read: ReadChains, is_ending: Callable[[], bool]
) -> None:
    """Until the reader leaves, the server ends, or the core fails or has forgotten what the reader lacks."""
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": hello + first["frames"], "more_body": True})
    leaving = asyncio.create_task(_wait_for_leave(receive))
    reading: asyncio.Future[dict[str, Any]] | None = None
    sequence, silent = first["sequence"], 0.0
    try:
        while not is_ending():
            if reading is None:
                await asyncio.wait([leaving], timeout=PAUSE_SECONDS)
                silent += PAUSE_SECONDS
                if leaving.done():
                    return
                reading = asyncio.ensure_future(read(first["instance"], sequence))
            both: list[asyncio.Future[Any]] = [leaving, reading]
            await asyncio.wait(both, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                return
            data = b""
            if reading.done():
                found, reading = reading.result(), None
                if not found.get("resumes"):
                    break
                sequence, data = found["sequence"], found["frames"]
            else:
                silent += HEARTBEAT_SECONDS
            if data or silent >= HEARTBEAT_SECONDS - PAUSE_SECONDS:
                await send({
                    "type": "http.response.body", "body": data or encode_frame(Heartbeat(sequence)), "more_body": True,
                })  # fmt: skip
                silent = 0.0
    except Exception as error:  # the core's own fault, in its words
        log.warning("paternoster_vllm: text chains end: %s", str(error)[:500])
    finally:
        leaving.cancel()
        if reading is not None:
            reading.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _wait_for_leave(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
