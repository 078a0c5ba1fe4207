"""Keep the record of served names where only the operator writes: read once, written before a name is used."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from paternoster_contract.routing import ModelRoute
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.names.record import FIELD, Entry, NameRecord

log = logging.getLogger(__name__)

WRITE_SECONDS = 1.0
"""Least time between two writes, each of which has all changes since the last one."""


TRIES_PER_WRITER = 3


class RecordObject(Protocol):
    """The object that the record is in; its methods raise :class:`ClusterError`."""

    async def read(self) -> tuple[Mapping[str, str], str] | None:
        """Its fields and version; None where there is none."""
        ...

    async def write(self, data: Mapping[str, str], version: str | None) -> str | None:
        """Replace its fields if ``version`` is still its own (None: if there is none); returns the new version.

        None where another writer came first.
        """
        ...

    async def read_published_routes(self) -> Mapping[str, ModelRoute]:
        """Rows of the copy of the routing table, by their first names, as an operator published them last."""
        ...


class RecordStore:
    """The record as last read or written; :attr:`is_read` is false before."""

    def __init__(
        self,
        stored: RecordObject | None,
        on_fault: Callable[[str], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        writers: int = 1,
    ) -> None:
        """``stored``: None where the record lives as long as this process.

        ``on_fault``: called with ``read``, ``write`` or ``invalid`` for each. ``writers``: how many operators may write
        at the same time; the one that comes second reads what the first wrote, and tries again.
        """
        self._tries = 1 if writers == 1 else TRIES_PER_WRITER * writers
        self.record = NameRecord()
        self.is_read = stored is None
        self._object = stored
        self._on_fault = on_fault
        self._clock = clock
        self._sleep = sleep
        self._version: str | None = None
        self._stored: NameRecord | None = None
        """The record in the object; None while there is none, or an invalid one."""
        self._written_at = float("-inf")
        self._turn = asyncio.Lock()
        self._invalid = ""

    @property
    def is_stored(self) -> bool:
        """Whether the record is outside of this process; before the first write, or without any, it is not."""
        return self._stored is not None

    async def read(self, keys_by_uid: Callable[[], Mapping[str, Key]]) -> None:
        """Read the record. Where none is there, or an invalid one, the last one that was read or written stays.

        Before there was any, it begins with what was published without one. Raises :class:`ClusterError`.
        """
        if self._object is None:
            return
        async with self._turn:
            try:
                await self._read(self._object, keys_by_uid)
            except ClusterError:
                self._on_fault("read")
                raise

    async def _read(self, stored: RecordObject, keys_by_uid: Callable[[], Mapping[str, Key]]) -> None:
        found = await stored.read()
        if found is not None and self.is_read and found[1] == self._version:
            return
        data, self._version = ({}, None) if found is None else found
        record = self._stored = None if found is None else self._parse(data)
        if record is None and self.record.fleets:
            record = self.record  # an API server that fails may answer 404, too
        elif record is None:
            published, keys = await stored.read_published_routes(), keys_by_uid()
            record = NameRecord(
                {keys[r.fleet]: Entry(names=(name, *r.names)) for name, r in published.items() if r.fleet in keys}
            )
        self.record, self.is_read = record, True

    async def write(self, build: Callable[[], NameRecord]) -> None:
        """Write what ``build`` returns unless it is stored already. Raises :class:`ClusterError`.

        Writers take turns, and ``build`` is called at one's turn: many fleets that come at once cost one write.
        """
        if self._object is None:
            self.record = build()
            return
        async with self._turn:
            if build() == self._stored:
                return
            await self._sleep(max(0.0, self._written_at + WRITE_SECONDS - self._clock()))
            self._written_at = self._clock()
            try:
                for number in range(self._tries):
                    if number and not await self._read_written(self._object):
                        break
                    record = build()
                    version = await self._object.write({FIELD: record.encode()}, self._version)
                    if version is not None:
                        self.record, self._stored, self._version = record, record, version
                        return
            except ClusterError:
                self._on_fault("write")
                raise
            self.is_read = False
            raise ClusterError("the record of served names was written by another operator: it is read again")

    async def _read_written(self, stored: RecordObject) -> bool:
        """Read what another writer wrote; False where it cannot be used."""
        found = await stored.read()
        record = None if found is None else self._parse(found[0])
        if found is None or record is None:
            return False
        self.record, self._stored, self._version = record, record, found[1]
        return True

    def _parse(self, data: Mapping[str, str]) -> NameRecord | None:
        """None for an invalid one, which is logged once."""
        try:
            record, fault = NameRecord.decode(data.get(FIELD, "")), ""
        except ValueError as error:
            record, fault = None, str(error)
            self._on_fault("invalid")
            if fault != self._invalid:
                log.error(
                    "%s; it is made again from the routes that were published, and from when fleets were made", fault
                )
        self._invalid = fault
        return record
