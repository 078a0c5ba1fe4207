"""Keeps a copy of the routing table in a Secret, for gateways that start while no operator is there."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from paternoster_contract.routing import RoutingTable
from paternoster_contract.routing_copy import CONFIRM_SECONDS, RoutingCopy
from paternoster_operator.cluster.port import ClusterError

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Between two looks at the table: pods that come and go together are one write."""
RETRY_SECONDS = 30.0
"""After a write that failed, or a table that is too long."""


class RoutesSecret:
    """Writes the table when it changes, and every :data:`CONFIRM_SECONDS` when it does not."""

    def __init__(
        self,
        table: Callable[[], Awaitable[RoutingTable | None]],
        write: Callable[[bytes], Awaitable[None]],
        wrote: Callable[[float, int], object] = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``table`` gives None while it is not whole. ``wrote`` is told the time and the bytes of each write."""
        self._table = table
        self._write = write
        self._wrote = wrote
        self._clock = clock
        self._last: RoutingTable | None = None
        self._due = 0.0
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
            table = await self._table()
            now = self._clock()
            if table is not None and (table != self._last or now >= self._due):
                packed = RoutingCopy(written_at=now, table=table).pack()
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
