"""The routing table as last seen; it outlives the operator's absence."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp

from paternoster_contract.routing import RoutingTable
from paternoster_gateway.keys import SentKeys

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
LONGEST_TABLE = 16 * 2**20
"""Bytes: some 200 000 replicas. What is longer is no operator's, and would take this process's memory and its time."""

LONGEST_FAULT = 300
"""Characters of what is logged of a table that is none."""


class TableSource:
    """Follows a routing table at an HTTP URL or in a file."""

    def __init__(self, location: str, on_change: Callable[[], None], keys: SentKeys) -> None:
        self.table = RoutingTable()
        self.seen = False
        """True once a table was read."""
        self._location = location
        self._on_change = on_change
        self._keys = keys
        self._text = b""
        self._fault = ""

    async def follow(self) -> None:
        """Read again and again, until cancelled."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                await self._refresh(session)
                await asyncio.sleep(PERIOD_SECONDS)

    async def _refresh(self, session: aiohttp.ClientSession) -> None:
        try:
            text = await self._read(session)
            if text != self._text:
                self.table = RoutingTable.model_validate_json(text)
                self._text, self.seen = text, True
                self._on_change()
            fault = ""
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            fault = (str(error) or type(error).__name__)[:LONGEST_FAULT]
        if fault and fault != self._fault:
            log.warning("routing table at %s: %s; going on with the last one", self._location, fault)
        self._fault = fault

    async def _read(self, session: aiohttp.ClientSession) -> bytes:
        """The table's text; raises what :meth:`_refresh` takes for a fault."""
        if not self._location.startswith(("http://", "https://")):
            return await asyncio.to_thread(_read_file, Path(self._location))

        async def get(key: Mapping[str, str]) -> aiohttp.ClientResponse:
            return await session.get(self._location, headers=key, allow_redirects=False)

        text = bytearray()
        async with await self._keys.send(get, self._location) as response:
            if response.status == 401:
                raise PermissionError("the gateway's key is refused (401): it is not of the operator's root key")
            if response.status != 200:
                raise OSError(f"HTTP {response.status}")
            async for chunk in response.content.iter_chunked(2**16):
                text += chunk
                _check_length(len(text))
        return bytes(text)


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        text = file.read(LONGEST_TABLE + 1)
    _check_length(len(text))
    return text


def _check_length(size: int) -> None:
    if size > LONGEST_TABLE:
        raise ValueError(f"it is longer than {LONGEST_TABLE} bytes")
