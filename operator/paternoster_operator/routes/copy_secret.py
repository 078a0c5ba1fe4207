"""Write a copy of the routing table into a Secret, for gateways that start while no operator runs."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from paternoster_contract.routing import RoutingTable
from paternoster_contract.routing_copy import CONFIRM_SECONDS, MOST_UNPACKED_BYTES, RoutingCopy
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.routes.published import PublishedTable

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
"""Time between two comparisons of the table, so that pods that change together cause one write."""
RETRY_SECONDS = 30.0
"""Time after a write that failed, or a table that is too long."""


class RoutesSecret:
    """Writes the table when it changes, and every :data:`CONFIRM_SECONDS` when it does not."""

    def __init__(
        self,
        table: Callable[[], Awaitable[PublishedTable | None]],
        write: Callable[[bytes], Awaitable[None]],
        wrote: Callable[[float, int], object] = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``table`` returns None while it is incomplete. ``wrote`` is called with the time and size of each write."""
        self._table = table
        self._write = write
        self._wrote = wrote
        self._clock = clock
        self._last = RoutingTable()
        self._due = float("-inf")
        """Unix time at which an unchanged table is written again."""
        self._fault = ""

    async def run(self) -> None:
        """Write until cancelled; only the leading operator may."""
        while True:
            succeeded = await self.write_if_due()
            await asyncio.sleep(CHECK_SECONDS if succeeded else RETRY_SECONDS)

    async def write_if_due(self) -> bool:
        """Write the table if it has changed or must be confirmed; False after an error, which is logged."""
        try:
            published = await self._table()
            now = self._clock()
            if published is None:
                return True
            table = published.table.completed_from(self._last)
            if table != self._last or now >= self._due:
                packed = await asyncio.to_thread(_pack_rows, published, self._last, now)
                await self._write(packed)
                self._wrote(now, len(packed))
                self._last, self._due = table, now + CONFIRM_SECONDS
        except (ClusterError, ValueError) as error:
            if str(error) != self._fault:
                log.warning("cannot write the copy of the routing table: %s", error)
            self._fault = str(error)
            return False
        self._fault = ""
        return True


def _pack_rows(published: PublishedTable, last: RoutingTable, now: float) -> bytes:
    """Pack the rows that a Secret has room for, shared out by namespace; raises ``ValueError`` where few do not fit."""
    capacity = MOST_UNPACKED_BYTES // 2
    while True:
        fitting = published.fit_rows(capacity)
        if fitting.left_out:
            log.warning("the copy of the routing table has no room for %d of its rows", len(fitting.left_out))
        try:
            return RoutingCopy(written_at=now, table=fitting.table.completed_from(last)).pack()
        except ValueError:
            if not fitting.rows:
                raise
        capacity //= 2
