"""A streaming client of the OpenAI completions API that measures what a user sees.

Times are seconds of ``time.perf_counter``. One request is one coroutine that parses server-sent events straight from
the socket's chunks: at a thousand tokens a second the client must not become the bottleneck of a two-core machine.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_contract.http import paths
from paternoster_load.results import BenchRequest, RequestEnd, RequestResult

COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"
TOKENIZE = "/tokenize"
DONE = "[DONE]"


class ServerError(Exception):
    """The server's own explanation of why it did not serve a request."""


def read_explanation(payload: Any) -> str | None:
    """The message of an OpenAI error body, or None when it explains nothing."""
    error = payload.get("error") if isinstance(payload, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else None


async def read_events(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """The ``data`` of each server-sent event, as the HTML standard's event stream format frames them."""
    buffer = b""
    async for chunk in response.content.iter_any():
        buffer = (buffer + chunk).replace(b"\r\n", b"\n")
        *whole, buffer = buffer.split(b"\n\n")
        for event in whole:
            lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines:
                yield b"\n".join(lines).decode()


async def read_chunks(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The JSON chunks of a completion stream up to ``[DONE]``; raises :class:`ServerError` on an error event."""
    async for data in read_events(response):
        if data == DONE:
            return
        chunk = json.loads(data)
        if (message := read_explanation(chunk)) is not None:
            raise ServerError(message)
        yield chunk
    raise aiohttp.ClientPayloadError("the stream ended before [DONE]")


class BenchClient:
    """Sends requests to one server. Use as an async context manager."""

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        sampling: dict[str, Any] | None = None,
        keep_alive: bool = True,
    ) -> None:
        """``keep_alive`` False: each request has its own connection, as for a server that closes idle ones any time."""
        self.url = url.rstrip("/")
        self.model = model
        self._sampling = sampling or {}
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._keep_alive = keep_alive

    async def __aenter__(self) -> "BenchClient":
        connector = aiohttp.TCPConnector(limit=0, force_close=not self._keep_alive)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, headers=self._headers)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._session.close()

    async def list_models(self) -> list[dict[str, Any]]:
        """The served models, as ``/v1/models`` lists them."""
        return list((await self._request_json("GET", paths.MODELS)).get("data", []))

    async def tokenize(self, text: str) -> list[int]:
        """Token ids of ``text``, without special tokens."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        return list((await self._request_json("POST", TOKENIZE, body))["tokens"])

    async def stream_chat(self, prompt: str, **params: Any) -> AsyncIterator[str]:
        """The answer to one user message, piece by piece; raises :class:`ServerError`."""
        body = {"model": self.model, "messages": [{"role": "user", "content": prompt}], "stream": True, **params}
        async with self._session.post(self.url + CHAT_COMPLETIONS, json=body) as response:
            if response.status != 200:
                raise ServerError(await _read_refusal(response) or f"HTTP {response.status}")
            async for chunk in read_chunks(response):
                for choice in chunk["choices"]:
                    if piece := choice["delta"].get("content"):
                        yield piece

    async def send(self, request: BenchRequest) -> RequestResult:
        """One completion from first byte to last; never raises for what the server or the network does."""
        result = RequestResult(request.index, time.perf_counter(), request.prompt_tokens)
        try:
            await self._stream_request(request, result)
        except ServerError as error:
            result.outcome, result.error = RequestEnd.REFUSED, str(error)
        except TimeoutError:
            result.error = f"no end within {self._timeout.total:g} s"
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
            result.error = f"{type(error).__name__}: {error}"
        result.latency = time.perf_counter() - result.start
        return result

    async def _stream_request(self, request: BenchRequest, result: RequestResult) -> None:
        body = {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._sampling,
        }
        async with self._session.post(self.url + COMPLETIONS, json=body) as response:
            result.status = response.status
            if response.status != 200:
                if (message := await _read_refusal(response)) is not None:
                    raise ServerError(message)
                result.error = f"HTTP {response.status} without an explanation"
                return
            finished = False
            last = result.start
            async for chunk in read_chunks(response):
                if usage := chunk.get("usage"):
                    result.prompt_tokens = usage["prompt_tokens"]
                    result.output_tokens = usage["completion_tokens"]
                if not (choices := chunk["choices"]):
                    continue
                now = time.perf_counter()
                if result.ttft is None:
                    result.ttft = now - result.start
                else:
                    result.itls.append(now - last)
                last = now
                finished = finished or choices[0].get("finish_reason") is not None
        if finished:
            result.outcome = RequestEnd.COMPLETED
        else:
            result.error = "the stream ended without a finish reason"

    async def _request_json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            async with self._session.request(method, self.url + path, json=body) as response:
                if response.status != 200:
                    raise ServerError(
                        f"{path}: HTTP {response.status}: {await _read_refusal(response) or response.reason}"
                    )
                return dict(await response.json())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise ServerError(f"{self.url}{path}: {error_text(error)}") from error


async def _read_refusal(response: aiohttp.ClientResponse) -> str | None:
    try:
        return read_explanation(await response.json(content_type=None))
    except ValueError:
        return None


async def drive_load(
    client: BenchClient,
    requests: Iterable[BenchRequest],
    *,
    max_concurrency: int | None = None,
    duration: float | None = None,
    on_result: Callable[[RequestResult], None] = lambda _: None,
) -> list[RequestResult]:
    """Send each request at its arrival time and wait for all answers; results in order of sending.

    ``max_concurrency`` holds arrivals back while that many are in flight; ``duration`` is when sending stops, in s.
    """
    slots = asyncio.Semaphore(max_concurrency) if max_concurrency else None
    tasks: list[asyncio.Task[RequestResult]] = []
    begin = time.perf_counter()

    async def run(request: BenchRequest) -> RequestResult:
        try:
            result = await client.send(request)
        finally:
            if slots:
                slots.release()
        on_result(result)
        return result

    def is_over() -> bool:
        return duration is not None and time.perf_counter() - begin >= duration

    for request in requests:
        if duration is not None and request.arrival_s >= duration:
            break
        if (delay := begin + request.arrival_s - time.perf_counter()) > 0:
            await asyncio.sleep(delay)
        if slots:
            await slots.acquire()
        if is_over():
            break
        tasks.append(asyncio.create_task(run(request)))
    return list(await asyncio.gather(*tasks))
