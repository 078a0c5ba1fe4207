"""The routing table as last seen; it outlives the operator's absence."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import aiohttp
from pydantic import ValidationError

from paternoster_contract.routing import RoutingTable

log = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5


class TableSource:
    """Follows a routing table at an HTTP URL or in a file."""

    def __init__(self, location: str, on_change: Callable[[], None]) -> None:
        self.table = RoutingTable()
        self.seen = False
        """True once a table was read."""
        self._location = location
        self._on_change = on_change
        self._text = ""
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
        except (aiohttp.ClientError, OSError, TimeoutError, ValidationError) as error:
            fault = str(error) or type(error).__name__
        if fault and fault != self._fault:
            log.warning("routing table at %s: %s; going on with the last one", self._location, fault)
        self._fault = fault

    async def _read(self, session: aiohttp.ClientSession) -> str:
        if not self._location.startswith(("http://", "https://")):
            return await asyncio.to_thread(Path(self._location).read_text)
        async with session.get(self._location) as response:
            response.raise_for_status()
            return await response.text()
