"""Passing a request's body on and its answer back, byte by byte and without looking into them.

Until the first byte of the answer a failed attempt can be repeated at another replica; after it the failure is told.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp

from paternoster_contract.access.identity import HEADER
from paternoster_contract.http import paths
from paternoster_contract.routing import Replica
from paternoster_gateway import liveness
from paternoster_gateway.admission import Admission
from paternoster_gateway.balancer import Balancer
from paternoster_gateway.errors import GatewayError, keys_refused, unavailable
from paternoster_gateway.keys import SentKeys
from paternoster_gateway.liveness import Liveness
from paternoster_gateway.metrics import GatewayMetrics

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 4
RETRIED_STATUS = frozenset({502, 503, 504})
PASSED_ON = frozenset(
    {"accept", "accept-encoding", "content-type", "traceparent", "tracestate", "user-agent", "x-request-id"}
)
"""Headers of a request that engines get: none that says who the client is, such as its key, a cookie, or what a proxy
before the gateway adds for whoever comes next."""
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
     "upgrade", "content-length"}
)  # fmt: skip
"""Headers of an answer that are of one connection and not of the message (RFC 9110, 7.6.1)."""


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request."""

    path: str
    model: str
    body: bytes
    headers: Mapping[str, str]
    key: str = field(default="", repr=False)
    """The client's; for the gateway alone."""


@dataclass(slots=True)
class Answer:
    """An engine's answer whose body is still on its way; ``chunks`` must be read to its end or closed."""

    status: int
    headers: dict[str, str]
    chunks: AsyncIterator[bytes]


class Proxy:
    """Sends calls to replicas."""

    def __init__(self, balancer: Balancer, metrics: GatewayMetrics, keys: SentKeys, watched: Liveness) -> None:
        self._balancer = balancer
        self._liveness = watched
        self._metrics = metrics
        self._keys = keys
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=5),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        )

    async def close(self) -> None:
        await self._liveness.close()
        if self._session is not None:
            await self._session.close()

    async def healthy(self, url: str) -> bool:
        """Whether the replica at ``url`` says in time that it is not hung; any other answer will do."""
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=liveness.PROBE_SECONDS)
        try:
            async with self._session.get(url + paths.HEALTH, timeout=timeout, allow_redirects=False) as response:
                return response.status < 500
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def send(self, call: Call, admission: Admission) -> Answer:
        """The answer of some replica; raises :class:`GatewayError` when none could be had."""
        tried: list[str] = []
        while True:
            replica = await self._balancer.acquire(admission, tried)
            stack = AsyncExitStack()
            stack.enter_context(self._balancer.counted(replica))
            last = len(tried) + 1 >= MAX_ATTEMPTS
            try:
                async with self._liveness.expecting(replica.url):
                    response = await stack.enter_async_context(await self._ask(replica, call, admission))
                final = response.headers.get("x-should-retry") == "false"
                if response.status == 401:
                    log.warning(
                        "%s at %s refused the gateway's key: not of its fleet's root", replica.name, replica.url
                    )
                    self._balancer.put_aside(replica)
                    reason = "status_401"
                    if last:
                        raise keys_refused(call.model, len(tried) + 1)
                elif response.status in RETRIED_STATUS and not final and not last:
                    reason = f"status_{response.status}"
                else:
                    # The first piece belongs to the attempt: an engine that dies before it can be replaced.
                    async with self._liveness.expecting(replica.url):
                        first = await response.content.readany()
                    headers = _end_to_end(response.headers)
                    return Answer(response.status, headers, self._body(call, replica, response, first, stack))
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("%s did not answer: %s", replica.url, str(error) or type(error).__name__)
                self._balancer.put_aside(replica)
                reason = "hung" if replica.url in self._liveness.hung else "unreachable"
                if last:
                    await stack.aclose()
                    raise unavailable(f"{len(tried) + 1} replicas of `{call.model}` did not answer.", 1) from error
            except BaseException:
                await stack.aclose()
                raise
            await stack.aclose()
            tried.append(replica.url)
            self._metrics.retries.labels(reason).inc()

    async def _ask(self, replica: Replica, call: Call, admission: Admission) -> aiohttp.ClientResponse:
        assert self._session is not None
        session, url = self._session, replica.url + call.path
        who = {} if admission.identity is None else {HEADER: admission.identity.encode()}

        async def send(key: Mapping[str, str]) -> aiohttp.ClientResponse:
            # Wherever an engine would send the gateway to, request and key do not go there.
            return await session.post(
                url, data=call.body, headers={**call.headers, **who, **key}, allow_redirects=False
            )

        return await self._keys.send(send, replica.url, admission.fleet)

    async def _body(
        self, call: Call, replica: Replica, response: aiohttp.ClientResponse, first: bytes, stack: AsyncExitStack
    ) -> AsyncIterator[bytes]:
        async with stack:
            try:
                chunk = first
                while chunk:
                    yield chunk
                    async with self._liveness.expecting(replica.url):
                        chunk = await response.content.readany()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._metrics.broken.labels(call.model).inc()
                self._balancer.put_aside(replica)
                log.warning("%s broke off an answer: %s", replica.url, str(error) or type(error).__name__)
                if not response.content_type.startswith("text/event-stream"):
                    raise
                yield b"\n\n" + GatewayError(502, "BadGatewayError", "The replica broke off its answer.").event(
                    call.path
                )
            except (GeneratorExit, asyncio.CancelledError):
                # The client has gone: closing the connection tells the engine to stop.
                response.close()
                raise


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    """Without those of one connection, which are also those that ``Connection`` names."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP | named}
