"""The routing table as last read; the gateway serves by it while no operator answers.

A gateway that starts while no operator answers serves from a copy that the operator left in a Secret. Once an operator
has answered, its table is the newer one, and the copy is not read any more.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_contract.routing import RoutingTable
from paternoster_contract.routing_copy import MOST_BYTES, RoutingCopy
from paternoster_contract.routing_rows import CONTENT_TYPE
from paternoster_contract.routing_rows import MOST_BYTES as LONGEST_TABLE
from paternoster_gateway.errors import unavailable_error
from paternoster_gateway.sent_keys import SentKeys
from paternoster_gateway.table.rows import RowReader
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector
from paternoster_http.errors.refusal import RETRY_AFTER_SECONDS

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
LONGEST_FAULT = 300
"""Most characters of a logged error about a table that cannot be read."""


class Origin(StrEnum):
    """Where a gateway has its table from."""

    NONE = "none"
    SOURCE = "operator"
    """The operator, or the file in its place."""
    COPY = "copy"


class TableSource:
    """Follows a routing table at an HTTP URL or in a file."""

    def __init__(
        self,
        location: str,
        on_change: Callable[[RoutingTable], None],
        keys: SentKeys,
        copy: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``copy``: a file with a :class:`RoutingCopy`, used until a table was read from ``location``."""
        self.table = RoutingTable()
        self.origin = Origin.NONE
        self._confirmed_at: float | None = None
        self._copy = copy
        self._copied = b""
        self._copy_fault = ""
        self._clock = clock
        self._location = location
        self._on_change = on_change
        self._keys = keys
        self._text = b""
        self._rows = RowReader()
        self._fault = ""

    @property
    def has_table(self) -> bool:
        """Whether a table was read."""
        return self.origin is not Origin.NONE

    def require_table(self) -> RoutingTable:
        """The table as last read; raises :class:`GatewayError` (503) while none was."""
        if not self.has_table:
            raise unavailable_error("This gateway has not read its routing table yet.", RETRY_AFTER_SECONDS)
        return self.table

    @property
    def age_seconds(self) -> float | None:
        """Seconds since an operator last confirmed the table; None without a table."""
        return None if self._confirmed_at is None else max(0.0, self._clock() - self._confirmed_at)

    async def follow_table(self) -> None:
        """Read the table every :data:`PERIOD_SECONDS`, until cancelled."""
        # Not decompressed: a table is bounded by the bytes that are read.
        async with aiohttp.ClientSession(
            connector=bounded_connector(),
            read_bufsize=READ_BUFFER,
            timeout=aiohttp.ClientTimeout(total=5),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
        ) as session:
            while True:
                await self._refresh(session)
                await asyncio.sleep(PERIOD_SECONDS)

    async def _refresh(self, session: aiohttp.ClientSession) -> None:
        try:
            table = await self._read(session)
            if table is not None:
                self.table = table.completed_from(self.table)
                if self.origin is Origin.COPY:
                    log.info("routing table at %s: read; the copy is not used any more", self._location)
                self.origin = Origin.SOURCE
                self._on_change(self.table)
            self._confirmed_at = self._clock()
            fault = ""
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            fault = error_text(error)[:LONGEST_FAULT]
        if fault and fault != self._fault:
            log.warning("routing table at %s: %s; going on with the last one", self._location, fault)
        self._fault = fault
        if fault and self.origin is not Origin.SOURCE and self._copy is not None:
            await self._read_copy(self._copy)

    async def _read_copy(self, file: Path) -> None:
        """Read the table from the copy; a newer copy may come while no operator answers the gateway."""
        try:
            packed = await asyncio.to_thread(_read_file, file, MOST_BYTES)
            if packed == self._copied:
                return
            copy = RoutingCopy.unpack(packed)
        except (OSError, ValueError) as error:
            fault = (str(error) or type(error).__name__)[:LONGEST_FAULT]
            if fault != self._copy_fault:
                log.warning("no copy of the routing table in %s: %s", file, fault)
            self._copy_fault = fault
            return
        self._copied, self._copy_fault = packed, ""
        self.table, self.origin, self._confirmed_at = copy.table, Origin.COPY, copy.written_at
        log.warning(
            "no operator answers: serving from the copy of its routing table of %s, %d s old, with %d models",
            datetime.fromtimestamp(copy.written_at, UTC).isoformat(timespec="seconds"), self.age_seconds,
            len(copy.table.models),
        )  # fmt: skip
        self._on_change(self.table)

    async def _read(self, session: aiohttp.ClientSession) -> RoutingTable | None:
        """The table, None where it is the one that was read last; raises the errors that :meth:`_refresh` logs."""
        if not self._location.startswith(("http://", "https://")):
            return self._parse_document(await asyncio.to_thread(_read_file, Path(self._location), LONGEST_TABLE))

        async def get(key: Mapping[str, str]) -> aiohttp.ClientResponse:
            headers = {**key, "Accept": f"{CONTENT_TYPE}, application/json", "If-None-Match": self._rows.etag}
            return await session.get(self._location, headers=headers, allow_redirects=False)

        async with await self._keys.send(get, self._location) as response:
            if response.status == 304 and self._rows.etag:
                return None
            if response.status == 401:
                raise PermissionError("the gateway's key is refused (401): it is not of the operator's root key")
            if response.status != 200:
                raise OSError(f"HTTP {response.status}")
            chunks = response.content.iter_chunked(2**16)
            if response.content_type == CONTENT_TYPE:
                return await self._rows.read(chunks, response.headers.get("ETag", ""))
            text = bytearray()  # of an operator up to 0.2
            async for chunk in chunks:
                text += chunk
                _check_length(len(text), LONGEST_TABLE)
            return self._parse_document(bytes(text))

    def _parse_document(self, text: bytes) -> RoutingTable | None:
        if text == self._text:
            return None
        table = RoutingTable.model_validate_json(text)
        self._text = text
        return table


def _read_file(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        text = file.read(most + 1)
    _check_length(len(text), most)
    return text


def _check_length(size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"it is longer than {most} bytes")
