"""Rows of the routing table that operators of other shards build: any operator of an installation has all rows."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

import aiohttp

from paternoster_contract.error_text import error_text
from paternoster_contract.http import paths
from paternoster_contract.routing import ModelRoute
from paternoster_contract.routing_rows import CONTENT_TYPE, MOST_BYTES, End, Row
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.names.record import Entry
from paternoster_operator.routes.published import PublishedRow, PublishedTable, UnreadRow

log = logging.getLogger(__name__)

READ_SECONDS = 0.5
"""Between two reads of each table, as often as gateways read the whole."""
ANSWER_SECONDS = 5.0
NEW_NAME_SECONDS = 5.0
"""Within which this operator reads the record anew: a row of a name that is not in it may be newer than its copy."""


@dataclass(slots=True)
class _ShardTable:
    """Last answer of one shard."""

    etag: str = ""
    rows: dict[bytes, PublishedRow] = field(default_factory=dict)
    """Rows by their lines."""
    left_out: Collection[str] = ()
    """Served names whose rows are beyond their namespace's share."""
    is_read: bool = False
    fault: str = ""
    """Why :attr:`rows` may be out of date."""


class ShardTables:
    """Which rows there must be is in the record of served names: one that no shard has now is unread, and not gone.

    So a fleet keeps its route while its shard is dead, and while buckets move between pods of two numbers of shards.
    """

    def __init__(
        self,
        urls: Sequence[str] = (),
        read_key: Callable[[], Awaitable[str | None]] | None = None,
        read_copy: Callable[[], Awaitable[Mapping[str, ModelRoute]]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``urls``: base URLs of the other shards' operators; ``read_key`` gives the key that these ask for.

        ``read_copy`` gives the rows that an operator of the installation published last, or raises ``ClusterError``.
        """
        self._tables = {url: _ShardTable() for url in urls}
        self._read_key = read_key
        self._read_copy = read_copy
        self._clock = clock
        self._copy_is_read = False
        self._copy_fault = ""
        self._session: aiohttp.ClientSession | None = None
        self._last: dict[str, tuple[PublishedRow, float]] = {}
        """The row that each fleet had last, and when, by name."""

    @property
    def are_read(self) -> bool:
        """Whether each shard has answered once, or was asked, and what was published before this process is read."""
        return self._copy_is_read or all(table.is_read for table in self._tables.values())

    @property
    def num_unread(self) -> int:
        """Shards that did not answer when they were last asked."""
        return sum(bool(table.fault) for table in self._tables.values())

    async def follow(self) -> None:
        """Read the tables of other shards until cancelled."""
        while self._tables:
            await self._read_all()
            await asyncio.sleep(READ_SECONDS)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def merge(self, own: PublishedTable, recorded: Mapping[Key, Entry]) -> PublishedTable:
        """All rows: ``own`` first; of two rows of one name, one. ``recorded``: the record of served names.

        An unread row is there as it was last, for gateways that have none.
        """
        if not self._tables:
            return own
        rows = {row.name: row for row in own.rows}
        for table in self._tables.values():
            for row in () if table.fault else table.rows.values():
                rows.setdefault(row.name, row)
        named = {*rows, *(each.names[0] for each in own.unread)}.union(*(t.left_out for t in self._tables.values()))
        unread = [each for each in own.unread if each.names[0] not in rows]
        there = [(fleet, entry.names) for fleet, entry in recorded.items() if entry.gone_since is None]
        unread += [UnreadRow(names, fleet) for fleet, names in there if names[0] not in named]
        now, names = self._clock(), named.union(*(entry.names for entry in recorded.values()))
        new = [row for name, (row, at) in self._last.items() if name not in names and now - at < NEW_NAME_SECONDS]
        unread += [UnreadRow(row.names, row.fleet) for row in new]
        last = [old for each in unread if (old := self._last.get(each.names[0])) and old[0].is_of(each)]
        self._last = {old[0].name: old for old in (*last, *((row, now) for row in rows.values()))}
        return PublishedTable([*rows.values(), *(row for row, _ in last)], unread)

    async def _read_all(self) -> None:
        await asyncio.gather(*(self._read(url, table) for url, table in self._tables.items()))
        if not self._copy_is_read and self._read_copy is not None:
            try:
                copy = await self._read_copy()
            except ClusterError as error:
                if str(error) != self._copy_fault:
                    log.warning("the copy of the routing table, for rows of shards that do not answer: %s", error)
                self._copy_fault = str(error)
                return
            self._last = {name: (_publish(name, route), float("-inf")) for name, route in copy.items()} | self._last
            self._copy_is_read = True

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
        table.left_out = {*end.left_out}

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
    return _publish(row.name, row.route)


def _publish(name: str, route: ModelRoute) -> PublishedRow:
    created = "" if route.created is None else datetime.fromtimestamp(route.created, UTC).isoformat()
    return PublishedRow(name, Key(route.namespace, route.fleet), route, created)
