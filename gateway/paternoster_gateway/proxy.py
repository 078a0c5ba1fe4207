"""Passing a request on and its answer back, byte by byte and without looking into it.

Until the first byte of the answer a failed attempt can be repeated at another replica; after it the failure is told.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp

from paternoster_contract.routing import Replica
from paternoster_gateway.balancer import Balancer
from paternoster_gateway.errors import GatewayError, unavailable
from paternoster_gateway.metrics import GatewayMetrics

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 4
RETRIED_STATUS = frozenset({502, 503, 504})
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
     "upgrade", "host", "content-length"}
)  # fmt: skip
"""Headers of one connection and not of the message (RFC 9110, 7.6.1)."""


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request."""

    path: str
    model: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class Answer:
    """An engine's answer whose body is still on its way; ``chunks`` must be read to its end or closed."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterator[bytes]


class Proxy:
    """Sends calls to replicas."""

    def __init__(self, balancer: Balancer, metrics: GatewayMetrics) -> None:
        self._balancer = balancer
        self._metrics = metrics
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=5),
            auto_decompress=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, call: Call) -> Answer:
        """The answer of some replica; raises :class:`GatewayError` when none could be had."""
        tried: list[str] = []
        while True:
            replica = await self._balancer.acquire(call.model, tried)
            stack = AsyncExitStack()
            stack.enter_context(self._balancer.counted(replica))
            last = len(tried) + 1 >= MAX_ATTEMPTS
            try:
                response = await self._ask(replica, call, stack)
                final = response.headers.get("x-should-retry") == "false"
                if response.status in RETRIED_STATUS and not final and not last:
                    reason = f"status_{response.status}"
                else:
                    # The first piece belongs to the attempt: an engine that dies before it can be replaced.
                    first = await response.content.readany()
                    headers = _end_to_end(response.headers)
                    return Answer(response.status, headers, self._body(call, replica, response, first, stack))
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("%s did not answer: %s", replica.url, error or type(error).__name__)
                self._balancer.put_aside(replica)
                reason = "unreachable"
                if last:
                    await stack.aclose()
                    raise unavailable(f"{len(tried) + 1} replicas of `{call.model}` did not answer.", 1) from error
            except BaseException:
                await stack.aclose()
                raise
            await stack.aclose()
            tried.append(replica.name)
            self._metrics.retries.labels(reason).inc()

    async def _ask(self, replica: Replica, call: Call, stack: AsyncExitStack) -> aiohttp.ClientResponse:
        assert self._session is not None
        request = self._session.post(replica.url + call.path, data=call.body, headers=_end_to_end(call.headers))
        return await stack.enter_async_context(request)

    async def _body(
        self, call: Call, replica: Replica, response: aiohttp.ClientResponse, first: bytes, stack: AsyncExitStack
    ) -> AsyncIterator[bytes]:
        async with stack:
            try:
                yield first
                async for chunk in response.content.iter_any():
                    yield chunk
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._metrics.broken.labels(call.model).inc()
                self._balancer.put_aside(replica)
                log.warning("%s broke off an answer: %s", replica.url, error or type(error).__name__)
                if not response.content_type.startswith("text/event-stream"):
                    raise
                yield b"\n\n" + GatewayError(502, "BadGatewayError", "The replica broke off its answer.").event()
            except (GeneratorExit, asyncio.CancelledError):
                # The client has gone: closing the connection tells the engine to stop.
                response.close()
                raise


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
