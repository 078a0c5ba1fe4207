"""Read a routing table row by row: an unchanged row is not parsed again, and an invalid one leaves out only itself."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterable

from pydantic import ValidationError

from paternoster_contract.routing import RoutingTable
from paternoster_contract.routing_rows import MOST_BYTES, End, Row

log = logging.getLogger(__name__)

_LONGEST_FAULT = 300
"""Most characters of a logged error about a line that is no row."""


class RowReader:
    """Remembers the rows of the last table by digest of their lines."""

    def __init__(self) -> None:
        self.etag = ""
        """The tag of the last table that was read whole."""
        self._rows: dict[bytes, Row | None] = {}
        """None: the line is no row."""

    async def read(self, chunks: AsyncIterable[bytes], etag: str) -> RoutingTable:
        """The table in ``chunks``; raises ``ValueError`` where it is cut off or longer than :data:`MOST_BYTES`."""
        rows: dict[bytes, Row | None] = {}
        faults: list[str] = []
        size, last = 0, b""
        rest = bytearray()
        async for chunk in chunks:
            size += len(chunk)
            if size > MOST_BYTES + 2**20:
                raise ValueError(f"the routing table is longer than {MOST_BYTES} bytes")
            rest += chunk
            if b"\n" not in chunk:
                continue
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if last:
                    await self._read_row(last, rows, faults)
                last = bytes(line)
        if rest or not last:
            raise ValueError("the routing table is cut off")
        end = End.model_validate_json(last)
        if end.rows != len(rows):
            raise ValueError(f"the routing table has {len(rows)} rows of {end.rows}")
        if faults:
            log.warning("%d rows of the routing table are left out; the first: %s", len(faults), faults[0])
        self._rows, self.etag = rows, etag
        models = {row.name: row.route for row in rows.values() if row is not None}
        return RoutingTable.model_construct(models=models, unread=end.unread)

    async def _read_row(self, line: bytes, rows: dict[bytes, Row | None], faults: list[str]) -> None:
        """Add the row of ``line`` to ``rows``; why it is none to ``faults``: empty but for the first."""
        digest = hashlib.sha256(line).digest()
        if digest in self._rows:
            rows[digest] = self._rows[digest]
            return
        try:
            rows[digest] = Row.model_validate_json(line)
        except ValidationError as error:
            rows[digest] = None
            faults.append("" if faults else str(error)[:_LONGEST_FAULT])
        await asyncio.sleep(0)
