"""Leadership among several operators: the one that holds a Lease acts, the others watch and are ready to.

The algorithm is client-go's leader election, as the Kubernetes client has it; here its requests get a time limit, and
one that fails counts as not renewed instead of ending the process.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import ClientError
from kubernetes.aio.client import ApiClient, ApiException, CoordinationV1Api, V1Lease, V1ObjectMeta
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from paternoster_contract.error_text import error_text
from paternoster_operator.cluster.port import Key

log = logging.getLogger(__name__)

LEASE_SECONDS = 15
"""Others take over after this long without a sign of life."""
RENEW_SECONDS = 12
"""A leader that could not renew for this long stops acting, before another one begins."""
RETRY_SECONDS = 2
REQUEST_SECONDS = 4

T = TypeVar("T")
_FAULTS = (ApiException, ClientError, OSError, TimeoutError)


class Leadership:
    """One candidate for the Lease ``lease``. ``on_lead`` and ``on_lose`` are called in turn."""

    def __init__(
        self, api: ApiClient, lease: Key, on_lead: Callable[[], Awaitable[None]], on_lose: Callable[[], Awaitable[None]]
    ) -> None:
        self.identity = f"{socket.gethostname()}_{os.getpid()}"
        self.leading = False
        self._api = CoordinationV1Api(api)
        self._lease = lease
        self._on_lead = on_lead
        self._on_lose = on_lose
        self._lock = _Lock(lease.name, lease.namespace, self.identity, api)

    def find_term(self) -> int | None:
        """Number of this leadership, which has no gap; None where the Lease was not renewed lately.

        The election itself goes by the time of day, and tries for :data:`RENEW_SECONDS` to renew a lost Lease. Where a
        process that was stopped for long finds its Lease as it was, others may have acted: that is another term.
        """
        is_fresh = self.leading and time.monotonic() - self._lock.renewed_at < RENEW_SECONDS
        return self._lock.terms if is_fresh else None

    async def run(self) -> None:
        """Stand for election again and again, until cancelled."""
        while True:
            config = Config(
                self._lock, LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS,
                onstarted_leading=self._begin_leading, onstopped_leading=self._end_leading,
            )  # fmt: skip
            try:
                await LeaderElection(config).run()
            except Exception:
                log.exception("the election for the lease %s failed; again in %d s", self._lease, RETRY_SECONDS)
                if self.leading:
                    await self._end_leading()
                await asyncio.sleep(RETRY_SECONDS)

    async def resign_lease(self) -> None:
        """Let the next one begin at once."""
        if not self.leading:
            return
        self.leading = False
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                lease = await self._api.read_namespaced_lease(self._lease.name, self._lease.namespace)
                if lease.spec is not None and lease.spec.holder_identity == self.identity:
                    lease.spec.holder_identity = None
                    await self._api.replace_namespaced_lease(self._lease.name, self._lease.namespace, lease)
        except _FAULTS as error:
            log.warning("the lease %s is not given back: %s", self._lease, error)

    async def _begin_leading(self) -> None:
        log.info("%s leads", self.identity)
        self.leading = True
        await self._on_lead()

    async def _end_leading(self) -> None:
        log.warning("%s leads no more: the lease %s was not renewed", self.identity, self._lease)
        self.leading = False
        await self._on_lose()


def shard_lease(lease: Key, shard: int) -> Key:
    """The Lease of one shard of the operators that have ``lease``, which is that of the first."""
    return lease if shard == 0 else Key(lease.namespace, f"{lease.name}-shard-{shard}")


class _Lock(LeaseLock):
    """A lock whose every request ends, and whose failures are answers."""

    renewed_at = float("-inf")
    """Begin of the last request that made or renewed the Lease, on the monotonic clock."""
    terms = 0
    """Renewals before which the Lease was not renewed for so long that its holder may not act."""

    async def get(self, name: str, namespace: str) -> Any:
        try:
            return await _in_time(super().get(name, namespace))
        except _FAULTS as error:
            return False, ApiException(status=0, reason=error_text(error))

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))

        async def create() -> bool:
            await self.api_instance.create_namespaced_lease(namespace, body)
            return True

        # Not the client's own: it asks for `pretty` with a value that its request refuses (kubernetes 37).
        return await self._is_done(create())

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        return await self._is_done(super().update(name, namespace, updated_record))

    async def _is_done(self, request: Awaitable[bool]) -> bool:
        begun = time.monotonic()
        try:
            done = await _in_time(request)
            if done:
                # Until now the holder could not act, however early the request was begun.
                self.terms += time.monotonic() - self.renewed_at >= RENEW_SECONDS
                self.renewed_at = begun
            return done
        except _FAULTS as error:
            log.warning("lease %s/%s: %s", self.namespace, self.name, error_text(error))
            return False


async def _in_time(request: Awaitable[T]) -> T:
    async with asyncio.timeout(REQUEST_SECONDS):
        return await request
