"""Keeps a copy of the routing table in a Secret, for gateways that start while no operator is there."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from paternoster_contract.routing import RoutingTable
from paternoster_contract.routing_copy import CONFIRM_SECONDS, MOST_UNPACKED_BYTES, RoutingCopy
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.routes_published import PublishedTable

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Between two looks at the table: pods that come and go together are one write."""
RETRY_SECONDS = 30.0
"""After a write that failed, or a table that is too long."""


class RoutesSecret:
    """Writes the table when it changes, and every :data:`CONFIRM_SECONDS` when it does not."""

    def __init__(
        self,
        table: Callable[[], Awaitable[PublishedTable | None]],
        write: Callable[[bytes], Awaitable[None]],
        wrote: Callable[[float, int], object] = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``table`` gives None while it is not whole. ``wrote`` is told the time and the bytes of each write."""
        self._table = table
        self._write = write
        self._wrote = wrote
        self._clock = clock
        self._last = RoutingTable()
        self._due = float("-inf")
        """When the same table is written again, in Unix seconds."""
        self._fault = ""

    async def run(self) -> None:
        """Until cancelled; only one operator may, the leading one."""
        while True:
            well = await self.look()
            await asyncio.sleep(LOOK_SECONDS if well else RETRY_SECONDS)

    async def look(self) -> bool:
        """Write the table if there is reason to; whether nothing is wrong."""
        try:
            published = await self._table()
            now = self._clock()
            if published is None:
                return True
            table = published.table.completed_from(self._last)
            if table != self._last or now >= self._due:
                packed = await asyncio.to_thread(_pack, published, self._last, now)
                await self._write(packed)
                self._wrote(now, len(packed))
                self._last, self._due = table, now + CONFIRM_SECONDS
        except (ClusterError, ValueError) as error:
            if str(error) != self._fault:
                log.warning("the copy of the routing table for gateways that start without an operator: %s", error)
            self._fault = str(error)
            return False
        self._fault = ""
        return True


def _pack(published: PublishedTable, last: RoutingTable, now: float) -> bytes:
    """As many rows as a Secret has room for, shared out by namespace; raises ``ValueError`` where not even few fit."""
    capacity = MOST_UNPACKED_BYTES // 2
    while True:
        fitting = published.within(capacity)
        if fitting.left_out:
            log.warning("the copy of the routing table has no room for %d of its rows", len(fitting.left_out))
        try:
            return RoutingCopy(written_at=now, table=fitting.table.completed_from(last)).pack()
        except ValueError:
            if not fitting.rows:
                raise
        capacity //= 2
