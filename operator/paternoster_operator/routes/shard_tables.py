"""Rows of the routing table that operators of other shards build: any operator of an installation has all rows."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_contract.http import paths
from paternoster_contract.routing_rows import CONTENT_TYPE, MOST_BYTES, End, Row
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector
from paternoster_operator.cluster.port import Key
from paternoster_operator.routes.published import PublishedRow, PublishedTable, UnreadRow

log = logging.getLogger(__name__)

READ_SECONDS = 0.5
"""Between two reads of each table, as often as gateways read the whole."""
ANSWER_SECONDS = 5.0
MISSING_SECONDS = 5.0
"""A row that no shard has for less long has not gone: its fleet may move to another shard, which has it soon."""


@dataclass(slots=True)
class _ShardTable:
    """Last answer of one shard."""

    etag: str = ""
    rows: dict[bytes, PublishedRow] = field(default_factory=dict)
    """Rows by their lines."""
    unread: Sequence[UnreadRow] = ()
    is_read: bool = False
    fault: str = ""


class ShardTables:
    """The last rows of each shard stand while it does not answer."""

    def __init__(
        self,
        urls: Sequence[str] = (),
        read_key: Callable[[], Awaitable[str | None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``urls``: base URLs of the other shards' operators; ``read_key`` gives the key that these ask for."""
        self._tables = {url: _ShardTable() for url in urls}
        self._read_key = read_key
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._last_seen: dict[str, tuple[PublishedRow, float]] = {}
        """Rows of the table that was put together last, and when they were there, by name."""

    @property
    def are_read(self) -> bool:
        """Whether each shard has answered once."""
        return all(table.is_read for table in self._tables.values())

    async def follow(self) -> None:
        """Read the tables of other shards until cancelled."""
        while self._tables:
            await asyncio.gather(*(self._read(url, table) for url, table in self._tables.items()))
            await asyncio.sleep(READ_SECONDS)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def merge(self, own: PublishedTable) -> PublishedTable:
        """All rows: ``own`` first; of two rows of one name, one."""
        if not self._tables:
            return own
        now, rows, unread = self._clock(), {row.name: row for row in own.rows}, list(own.unread)
        for table in self._tables.values():
            for row in table.rows.values():
                rows.setdefault(row.name, row)
            unread += table.unread
        named = {name for each in unread for name in each.names}
        for name, (row, seen_at) in list(self._last_seen.items()):
            if name in rows:
                continue
            if now - seen_at >= MISSING_SECONDS:
                del self._last_seen[name]
            elif name not in named:
                unread.append(UnreadRow(row.names, row.fleet, row.created))
        self._last_seen |= {name: (row, now) for name, row in rows.items()}
        return PublishedTable(list(rows.values()), unread)

    async def _read(self, url: str, table: _ShardTable) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._read_rows(url, table)
            fault = ""
        except Exception as error:
            fault = error_text(error) or type(error).__name__
        if fault != table.fault:
            log.warning("the rows of the shard at %s %s", url, f"stay as they were: {fault}" if fault else "are read")
        table.fault = fault

    async def _read_rows(self, url: str, table: _ShardTable) -> None:
        key = None if self._read_key is None else await self._read_key()
        headers = {"Accept": CONTENT_TYPE} | ({"If-None-Match": table.etag} if table.is_read else {})
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        call = self._open_session().get(url + paths.SHARD_ROUTES, headers=headers, allow_redirects=False)
        async with call as response:
            if response.status == HTTPStatus.NOT_MODIFIED:
                return
            if response.status != HTTPStatus.OK:
                raise OSError(f"HTTP {response.status}")
            body = bytearray()
            async for piece in response.content.iter_chunked(2**16):
                body += piece
                if len(body) > 2 * MOST_BYTES:
                    raise OSError(f"the answer is longer than {2 * MOST_BYTES} bytes")
        *lines, last = bytes(body).splitlines()
        end = End.model_validate_json(last)
        if end.rows != len(lines):
            raise OSError(f"{len(lines)} rows came of {end.rows}")
        rows = {}
        for number, line in enumerate(lines):
            rows[line] = table.rows.get(line) or _read_row(line)
            if number % 64 == 0:
                await asyncio.sleep(0)
        table.rows, table.etag, table.is_read = rows, response.headers.get("ETag", ""), True
        table.unread = [UnreadRow([name], Key("", name)) for name in end.unread]

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=bounded_connector(),
                read_bufsize=READ_BUFFER,
                auto_decompress=False,
                headers={"Accept-Encoding": "identity"},
            )
        return self._session


def _read_row(line: bytes) -> PublishedRow:
    row = Row.model_validate_json(line)
    created = "" if row.route.created is None else datetime.fromtimestamp(row.route.created, UTC).isoformat()
    return PublishedRow(row.name, Key(row.route.namespace, row.route.fleet), row.route, created)
