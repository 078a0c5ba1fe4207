"""Talking to engines and gateway: their numbers, and the live cap."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
from pydantic import ValidationError

from paternoster_contract import paths
from paternoster_contract.admin import LiveConfig, LiveConfigPatch
from paternoster_contract.stats import EngineStats, GatewayStats

log = logging.getLogger(__name__)

S = TypeVar("S", EngineStats, GatewayStats)
_NO_FIELDS: set[str] = set()
"""Of every answer: which fields it had is never asked, and would be two thirds of the memory of a sample."""
_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValidationError, ValueError)


class Scraper:
    """Asks many engines at once; one that does not answer in time is left out."""

    def __init__(self, *, timeout_seconds: float, gateway_url: str | None, admin_key: str | None) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._gateway_url = gateway_url
        self._headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def engines(self, urls: Mapping[str, str]) -> dict[str, EngineStats]:
        """Numbers of each engine by pod name, for those of ``urls`` (pod name -> base URL) that answered."""
        answers = await asyncio.gather(*(self._stats(url, EngineStats) for url in urls.values()))
        return {pod: stats for pod, stats in zip(urls, answers, strict=True) if stats is not None}

    async def held(self, model: str) -> int:
        """Requests for ``model`` that found no replica: see :meth:`held_by_model`."""
        return (await self.held_by_model()).get(model, 0)

    async def held_by_model(self) -> dict[str, int]:
        """Requests that all gateways hold, or have told to come again, by model; a silent gateway counts none."""
        if self._gateway_url is None:
            return {}
        try:
            urls = await addresses(self._gateway_url)
        except OSError as error:
            log.debug("gateway %s: %s", self._gateway_url, error)
            return {}
        held: Counter[str] = Counter()
        for stats in await asyncio.gather(*(self._stats(url, GatewayStats) for url in urls)):
            if stats is not None:
                held.update({model: numbers.held + numbers.refused for model, numbers in stats.models.items()})
        return dict(held)

    async def set_live_cap(self, url: str, cap: int) -> LiveConfig | None:
        """Tell one engine its cap; None when it refused or did not answer."""
        body = LiveConfigPatch(live_cap=cap).model_dump()
        try:
            async with self._open().patch(url + paths.ADMIN_CONFIG, json=body, headers=self._headers) as response:
                text = await response.text()
                if response.status != 200:
                    log.warning("%s refused live_cap %d: HTTP %d: %s", url, cap, response.status, text[:200])
                    return None
                return LiveConfig.model_validate_json(text)
        except _FAULTS as error:
            log.warning("%s did not take live_cap %d: %s", url, cap, error or type(error).__name__)
            return None

    async def _stats(self, url: str, kind: type[S]) -> S | None:
        """What an engine or a gateway tells about itself; None when it does not answer in time or in that form."""
        try:
            stats = kind.model_validate_json(await self._get(url + paths.STATS))
        except _FAULTS as error:
            log.debug("%s: %s", url, error or type(error).__name__)
            return None
        object.__setattr__(stats, "__pydantic_fields_set__", _NO_FIELDS)
        return stats

    async def _get(self, url: str) -> bytes:
        async with self._open().get(url) as response:
            response.raise_for_status()
            return await response.read()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        return self._session


async def addresses(url: str) -> list[str]:
    """``url`` once for each address its host has: a headless Service names every pod. Raises ``OSError``."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    hosts = sorted({str(address[0]) for *_, address in found})
    named = [f"[{host}]" if ":" in host else host for host in hosts]
    return [f"{parts.scheme}://{host}:{parts.port}" if parts.port else f"{parts.scheme}://{host}" for host in named]
