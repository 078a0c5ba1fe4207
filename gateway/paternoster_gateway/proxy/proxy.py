"""Passing a request's body on and its answer back, byte by byte and without looking into them.

Until the first byte of the answer a failed attempt can be repeated at another replica; after it the failure is told.
A refusal is no failure: an engine whose queue is full says so at once, and asking again would only be more load. One
other replica is asked, and only one that has not refused a request a moment ago; else the refusal is the answer. A
budget bounds all retries of a fleet.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn

import aiohttp

from paternoster_contract.access.identity import HEADER
from paternoster_contract.error_text import error_text
from paternoster_contract.http import paths
from paternoster_contract.http.headers import NOT_SERVING
from paternoster_contract.routing import Replica
from paternoster_gateway import liveness
from paternoster_gateway.admission import Admission
from paternoster_gateway.balancer import Balancer
from paternoster_gateway.errors import GatewayError, keys_refused, unavailable
from paternoster_gateway.keys import SentKeys
from paternoster_gateway.liveness import Liveness, Wait
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.proxy.headers import Headers, answer_headers, is_status_of_engine
from paternoster_gateway.quarantine import (
    LONG_BODY,
    MAX_POSSIBLE,
    Quarantine,
    Suspicion,
    digest_of,
    quarantined,
    suspicion,
)
from paternoster_gateway.routing.limits import MAX_ATTEMPTS
from paternoster_gateway.routing.retry_budget import RetryBudget, RetryBudgets
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector

log = logging.getLogger(__name__)

REFUSALS = frozenset({502, 503, 504})
"""Statuses for which one other replica is asked; 429 is about the client, and goes back to it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A client's request."""

    path: str
    model: str
    body: bytes
    headers: Mapping[str, str]
    key: str = field(default="", repr=False)
    """The client's; for the gateway alone."""
    named: bool = True
    """Whether the body names the model; else ``model`` is the only one."""


@dataclass(slots=True)
class Answer:
    """An engine's answer whose body is still on its way; :meth:`discard` must be called in the end."""

    status: int
    headers: Headers
    chunks: AsyncGenerator[bytes]
    replica: str
    """URL."""
    attempts: int
    """Replicas that were asked until this one answered, itself included."""
    stack: AsyncExitStack = field(repr=False)

    async def discard(self) -> None:
        """End it, however much of it was read."""
        await self.chunks.aclose()
        await self.stack.aclose()


class Next(Enum):
    """Who may be asked after an attempt."""

    NONE = "none"
    """The answer is the client's."""
    ONE_NOW = "one now"
    """One other replica, if one is ready: this one answered at once, and its answer is as good as any other."""
    ANY_NOW = "any now"
    """Every other one that is ready: the client has no part in what went wrong."""
    ANY = "any"
    """Every one, also one that is not ready yet: this one does not serve."""


@dataclass(slots=True)
class Attempt:
    """What came of sending a call to one replica: an answer, or an error for the client where no other can be asked."""

    outcome: Answer | GatewayError
    next: Next = Next.NONE
    reason: str = ""
    """Of a retry, for the metrics."""
    suspicion: Suspicion = Suspicion.NONE
    """Whether the call may have made the replica stop."""

    async def discard(self) -> None:
        """Another one is made in its place."""
        if isinstance(self.outcome, Answer):
            await self.outcome.discard()


class Proxy:
    """Sends calls to replicas."""

    def __init__(
        self, balancer: Balancer, metrics: GatewayMetrics, keys: SentKeys, watched: Liveness, quarantine: Quarantine
    ) -> None:
        self._balancer = balancer
        self._liveness = watched
        self._quarantine = quarantine
        self._metrics = metrics
        self._keys = keys
        self._session: aiohttp.ClientSession | None = None
        self.budgets = RetryBudgets()

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=bounded_connector(limit=0),
            read_bufsize=READ_BUFFER,
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
        budget = self.budgets.of(admission.model, admission.fleet)
        budget.count_request(time.monotonic())
        self._refuse_quarantined(call, admission)
        tried: list[str] = []
        suspected: list[tuple[str, Attempt]] = []
        replica = await self._balancer.acquire(admission)
        refused = False
        while True:
            self._refuse_quarantined(call, admission)  # the same body may have been in flight at another replica
            attempt = await self._attempt(replica, call, admission, len(tried) + 1)
            tried.append(replica.url)
            if attempt.suspicion is Suspicion.POSSIBLE:
                suspected.append((replica.url, attempt))
            if attempt.suspicion is Suspicion.CERTAIN or await self._stopped_replicas(suspected) >= MAX_POSSIBLE:
                self._put_in_quarantine(replica, call, admission)
            try:
                # After a refusal only one more is asked, whatever comes of that.
                following = None if refused else await self._following(attempt.next, admission, tried, budget)
            except BaseException:
                await attempt.discard()
                raise
            if following is None:
                if isinstance(attempt.outcome, GatewayError):
                    raise attempt.outcome
                return attempt.outcome
            await attempt.discard()
            self._metrics.retries.labels(attempt.reason).inc()
            refused = attempt.next is Next.ONE_NOW
            replica = following

    def _refuse_quarantined(self, call: Call, admission: Admission) -> None:
        if len(self._quarantine) and _digest(call, admission) in self._quarantine:
            self._metrics.quarantined.inc()
            raise quarantined(call.model)

    async def _stopped_replicas(self, suspected: Sequence[tuple[str, Attempt]]) -> int:
        """How many of these (by URL) stopped, and did not only close a connection: those answer their probe."""
        if len(suspected) < MAX_POSSIBLE:
            return 0
        closed = [url for url, attempt in suspected if attempt.reason != "hung"]
        return len(suspected) - sum(await asyncio.gather(*map(self.healthy, closed)))

    def _put_in_quarantine(self, replica: Replica, call: Call, admission: Admission) -> NoReturn:
        self._quarantine.add(_digest(call, admission))
        log.warning(
            "%s stopped while it had a request to %s of %d bytes: it is sent to no other replica",
            replica.url, call.path, len(call.body),
        )  # fmt: skip
        self._metrics.quarantined.inc()
        raise quarantined(call.model)

    async def _following(
        self, following: Next, admission: Admission, tried: Sequence[str], budget: RetryBudget
    ) -> Replica | None:
        """The replica to ask next, None for none; waits only where ``following`` says so."""
        if following is Next.NONE or len(tried) >= MAX_ATTEMPTS:
            return None
        if following is not Next.ANY and self._balancer.pick_for_retry(admission, tried) is None:
            return None
        if not budget.withdraw(time.monotonic()):
            self._metrics.retries_denied.inc()
            return None
        if following is Next.ANY:
            return await self._balancer.acquire(admission, tried)
        return self._balancer.pick_for_retry(admission, tried)

    async def _attempt(self, replica: Replica, call: Call, admission: Admission, number: int) -> Attempt:
        """Send ``call`` to ``replica`` and wait for the first piece of the answer; ``number`` counts from 1."""
        stack = AsyncExitStack()
        stack.enter_context(self._balancer.count_in_flight(replica))
        waits: Wait | None = None
        """For the headers, which come after the body was read and checked."""
        try:
            async with self._liveness.expecting(replica.url) as waits:
                response = await stack.enter_async_context(await self._ask(replica, call, admission))
            waits = None
            if response.status == 401:
                await stack.aclose()
                log.warning("%s at %s refused the gateway's key: not of its fleet's root", replica.name, replica.url)
                self._balancer.eject(replica)
                return Attempt(keys_refused(call.model, number), Next.ANY_NOW, "status_401")
            if not is_status_of_engine(response.status):
                await stack.aclose()
                log.warning("%s answered with status %d, which no engine does", replica.url, response.status)
                self._balancer.eject(replica)
                message = f"A replica of `{call.model}` answered with a status that no engine has."
                return Attempt(GatewayError(502, "BadGatewayError", message), Next.ANY_NOW, "bad_status")
            # The first piece belongs to the attempt: an engine that dies before it can be replaced.
            async with self._liveness.expecting(replica.url):
                first = await response.content.readany()
            chunks = self._body(call, admission.model, replica, response, first, stack)
            answer = Answer(response.status, answer_headers(response.raw_headers), chunks, replica.url, number, stack)
            following = self._after(response, replica)
            return Attempt(answer, following, "not_serving" if following is Next.ANY else f"status_{response.status}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await stack.aclose()
            log.warning("%s did not answer: %s", replica.url, error_text(error))
            self._balancer.eject(replica)
            reason = "hung" if replica.url in self._liveness.hung else "unreachable"
            message = f"{number} replicas of `{call.model}` did not answer."
            suspected = Suspicion.NONE if waits is None else suspicion(len(call.body), error, waits)
            return Attempt(unavailable(message, 1), Next.ANY, reason, suspected)
        except BaseException:
            await stack.aclose()
            if waits is not None and len(call.body) > LONG_BODY and not (waits.silent_before or waits.answered):
                self._quarantine.note_left(replica.url, _digest(call, admission), waits)
            raise

    def _after(self, response: aiohttp.ClientResponse, replica: Replica) -> Next:
        """Who may be asked after an answer, which is also noted for requests to come."""
        if response.status not in REFUSALS or response.headers.get("x-should-retry") == "false":
            return Next.NONE
        if response.status == 503 and NOT_SERVING in response.headers:
            self._balancer.eject(replica)
            return Next.ANY
        if response.status == 503:
            self._balancer.mark_full(replica)
        return Next.ONE_NOW

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
        self,
        call: Call,
        model: str,
        replica: Replica,
        response: aiohttp.ClientResponse,
        first: bytes,
        stack: AsyncExitStack,
    ) -> AsyncGenerator[bytes]:
        async with stack:
            try:
                chunk = first
                while chunk:
                    yield chunk
                    async with self._liveness.expecting(replica.url):
                        chunk = await response.content.readany()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._metrics.broken.labels(model).inc()
                self._balancer.eject(replica)
                log.warning("%s broke off an answer: %s", replica.url, error_text(error))
                if not response.content_type.startswith("text/event-stream"):
                    raise
                yield b"\n\n" + GatewayError(502, "BadGatewayError", "The replica broke off its answer.").event(
                    call.path
                )
            except (GeneratorExit, asyncio.CancelledError):
                # The client has gone: closing the connection tells the engine to stop.
                response.close()
                raise


def _digest(call: Call, admission: Admission) -> bytes:
    tenant = "" if admission.identity is None else admission.identity.tenant
    return digest_of(admission.fleet, tenant, call.path, call.body)
