"""Talking to engines and gateways: their numbers, the live cap, and drains."""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import aiohttp

from paternoster_contract.admin import LiveConfig, LiveConfigPatch, LoadLoraAdapter, UnloadLoraAdapter
from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.error_text import error_text
from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.http import paths
from paternoster_contract.http.base_url import join_base_url
from paternoster_contract.limits import LONGEST_NAME
from paternoster_contract.stats import (
    FLEET,
    MOST_MODELS,
    WAITING,
    EngineStats,
    GatewayModelStats,
    GatewayStats,
    LoraAdapterStats,
)
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector
from paternoster_http.json_bounds import bounded_json
from paternoster_operator.engines.adapter import EngineAdapter, LimitsUnavailable, StatsRequest, StatsUnavailable
from paternoster_operator.engines.answers import SampleFilter
from paternoster_operator.engines.catalogue import PATERNOSTER
from paternoster_operator.pods.engine_fault import EngineAnswer

log = logging.getLogger(__name__)

LONGEST_GATEWAY_STATS = 8 * 2**20
"""Bytes of an answer."""
MODELS_AT_ONCE = 256
"""Models of a gateway that are read between two turns of other tasks."""
LONGEST_ANSWER = 64 * 2**10
"""Bytes of an admin API's."""
ALL_OURS: Mapping[str, EngineAdapter] = MappingProxyType({})
_NO_FIELDS: set[str] = set()
"""Fields set of every answer: they are never asked for, and would be two thirds of the memory of a sample."""


@lru_cache(maxsize=1024)
def _share_parameters(parameters: DefaultParameters) -> DefaultParameters:
    """One object for all samples with these values, which are kept for ten minutes each."""
    return parameters


@lru_cache(maxsize=1024)
def _share_adapters(adapters: tuple[LoraAdapterStats, ...]) -> tuple[LoraAdapterStats, ...]:
    """One object for all samples of engines with the same adapters."""
    return adapters


class Scraper:
    """Asks many engines at once; one that does not answer in time is left out.

    Each engine and each gateway fails alone: whatever reading its answers raises is its own fault, and all of its
    answers together have one limit of time.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float,
        gateway_url: str | None,
        observe: Callable[[str, bool, float], None] = lambda _target, _succeeded, _seconds: None,
    ) -> None:
        """``observe`` is called for each poll of an ``engine`` or a ``gateway``: whether it succeeded, and seconds."""
        self._observe = observe
        self._timeout_seconds = timeout_seconds
        self._gateway_url = gateway_url
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def read_engines(
        self, urls: Mapping[str, str], adapters: Mapping[str, EngineAdapter] = ALL_OURS, keys: Sequence[str] = ()
    ) -> tuple[dict[str, EngineStats], dict[str, str], dict[str, str]]:
        """Stats of the engines at ``urls`` (pod name -> base URL), faults of invalid answers, and calls that failed.

        All by pod name. An engine whose limits no call moves, and whose adapter reads it without them, has a fault
        beside its stats. A call that failed is one that had no answer in time, or an answer with another status than
        200. The first of the fleet's admin ``keys`` that an engine accepts is used, where its adapter wants one: that
        of ``adapters``, by pod name, or our engine's.
        """
        answers = await asyncio.gather(
            *(self._engine_stats(url, adapters.get(pod, PATERNOSTER), keys) for pod, url in urls.items())
        )
        found = dict(zip(urls, answers, strict=True))
        stats = {pod: answer.stats for pod, answer in found.items() if answer.stats is not None}
        faults = {pod: answer.fault for pod, answer in found.items() if answer.fault}
        return stats, faults, {pod: answer.failed_call for pod, answer in found.items() if answer.failed_call}

    async def read_downloads(self, urls: Mapping[str, str]) -> dict[str, FetchStatus]:
        """How far pods are that fetch their model, by name, for those of ``urls`` that say so."""
        answers = await asyncio.gather(*(self._read_download(url) for url in urls.values()))
        return {pod: status for pod, status in zip(urls, answers, strict=True) if status is not None}

    async def _read_download(self, url: str) -> FetchStatus | None:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await self._get(url + paths.STATS, LONGEST_ANSWER)
            return FetchStatus.read(answer.decode(errors="replace"))
        except Exception as error:
            _find_fault(url, error)
            return None

    async def read_gateways(self, fleet: str) -> list[GatewayStats]:
        """What each gateway reports of the fleet with that uid; one that does not answer in time is left out."""
        return await self._read_gateways({FLEET: fleet})

    async def _read_gateways(self, query: Mapping[str, str]) -> list[GatewayStats]:
        if self._gateway_url is None:
            return []
        try:
            async with asyncio.timeout(self._timeout_seconds):
                urls = await resolve_addresses(self._gateway_url)
        except OSError as error:
            log.debug("gateway %s: %s", self._gateway_url, error)
            return []
        answers = await asyncio.gather(*(self._gateway_stats(f"{url}{paths.STATS}?{urlencode(query)}") for url in urls))
        return [stats for stats in answers if stats is not None]

    async def held_by_fleet(self) -> dict[str, int]:
        """Requests that all gateways hold, or have refused for now, by uid; a silent gateway counts none."""
        return held_by_fleet(await self._read_gateways({WAITING: "1"}))

    async def set_limits(
        self, url: str, limits: LiveConfigPatch, keys: Sequence[str], adapter: EngineAdapter = PATERNOSTER
    ) -> None:
        """Set the limits of the engine at ``url``; the first of ``keys`` that it accepts is used."""
        call = adapter.limits_call(limits)
        if call is not None:
            what = " and ".join(f"{name} {value}" for name, value in call.body.items())
            await self._call_admin(call.method, url + call.path, keys, f"take {what}", call.check, json=call.body)

    async def set_drained(self, url: str, drained: bool, keys: Sequence[str]) -> None:
        """Let the engine admit nothing more, or let it admit again."""
        what = "drain" if drained else "admit again"
        await self._call_admin(
            "POST" if drained else "DELETE", url + paths.ADMIN_DRAIN, keys, what, LiveConfig.model_validate_json
        )

    async def change_adapter(self, url: str, change: LoadLoraAdapter | UnloadLoraAdapter, keys: Sequence[str]) -> None:
        """Have the engine begin to load an adapter, or unload one."""
        loads = isinstance(change, LoadLoraAdapter)
        path, what = (paths.LOAD_LORA_ADAPTER, "load") if loads else (paths.UNLOAD_LORA_ADAPTER, "unload")
        body = change.model_dump(exclude_none=True)
        what = f"{what} the adapter {change.lora_name}"
        await self._call_admin("POST", url + path, keys, what, lambda _: None, json=body)

    async def ask_engine(self, method: str, url: str, keys: Sequence[str] = (), body: Any = None) -> EngineAnswer:
        """The answer to one request, with the first of ``keys`` that is accepted, or what was met in place of one."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                for key in keys or ("",):
                    headers = {"Authorization": f"Bearer {key}"} if key else {}
                    call = self._open_session().request(method, url, headers=headers, json=body, allow_redirects=False)
                    async with call as response:
                        text = (await _read_body(response, LONGEST_ANSWER)).decode(errors="replace")
                        if response.status != 401:
                            break
                return EngineAnswer(response.status, text)
        except TimeoutError:
            return EngineAnswer(None, f"no answer within {self._timeout_seconds:g} s")
        except aiohttp.ClientConnectorError as error:
            refused = error.os_error.errno == errno.ECONNREFUSED
            return EngineAnswer(None, "connection refused" if refused else error_text(error), refused=refused)
        except Exception as error:
            return EngineAnswer(None, error_text(error), speaks_tls=await self._speaks_tls(url))

    async def _speaks_tls(self, url: str) -> bool:
        """Whether the port answers a handshake; which certificate it has does not matter."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        parts = urlsplit(url)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
        except (OSError, ValueError):
            return False
        writer.transport.abort()
        return True

    async def _call_admin(
        self, method: str, url: str, keys: Sequence[str], what: str, check: Callable[[bytes], object], **body: Any
    ) -> None:
        """One call of an admin API; a failure is logged, and the next reconcile tries again."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                for key in keys or ("",):
                    headers = {"Authorization": f"Bearer {key}"} if key else {}
                    call = self._open_session().request(method, url, headers=headers, allow_redirects=False, **body)
                    async with call as response:
                        answer = await _read_body(response, LONGEST_ANSWER)
                        if response.status == 200:
                            check(answer)
                            return
                        text = answer.decode(errors="replace")
                        log.warning("%s did not %s: HTTP %d: %s", url, what, response.status, text[:200])
                        if response.status != 401:
                            return
        except Exception as error:
            log.warning("%s did not %s: %s", url, what, error_text(error))

    async def _engine_stats(self, url: str, adapter: EngineAdapter, keys: Sequence[str]) -> "_ReadEngine":
        began = time.monotonic()
        found = await self._read_engine(url, adapter, keys)
        self._observe("engine", found.stats is not None, time.monotonic() - began)
        return found

    async def _read_engine(self, url: str, adapter: EngineAdapter, keys: Sequence[str]) -> "_ReadEngine":
        fault, deadline = "", asyncio.get_running_loop().time() + self._timeout_seconds
        try:
            try:
                stats = await self._read_stats(url, adapter, keys, deadline)
            except LimitsUnavailable as error:
                fault = str(error)
                if adapter.without_limits is None:
                    return _ReadEngine(None, fault)
                stats = await self._read_stats(url, adapter.without_limits, (), deadline)
        except _CallFailed as error:
            log.debug("%s: %s", url, error)
            return _ReadEngine(None, fault, str(error))
        except Exception as error:
            return _ReadEngine(None, "; ".join(filter(None, (fault, _find_fault(url, error)))))
        if stats.default_parameters is not None:
            stats.default_parameters = _share_parameters(stats.default_parameters)
        if stats.adapters is not None:
            stats.adapters = _share_adapters(stats.adapters)
        object.__setattr__(stats, "__pydantic_fields_set__", _NO_FIELDS)
        return _ReadEngine(stats, fault)

    async def _read_stats(self, url: str, adapter: EngineAdapter, keys: Sequence[str], deadline: float) -> EngineStats:
        """One answer after the other: that of limits, the first, says whether the others are read of such an engine."""
        answers = []
        for request in adapter.stats_requests:
            try:
                async with asyncio.timeout_at(deadline):
                    answers.append(await self._read_answer(url, request, keys))
            except TimeoutError:
                what = f"no answer within {self._timeout_seconds:g} s: look at the engine's load and log"
                raise _CallFailed(f"GET {url}{request.path}: {what}") from None
            except (aiohttp.ClientError, OSError) as error:
                raise _CallFailed(f"GET {url}{request.path}: {error_text(error)[:200]}") from None
        return adapter.parse_stats(answers, time.time())

    async def _gateway_stats(self, url: str) -> GatewayStats | None:
        began, stats = time.monotonic(), None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                stats = await _parse_gateway_stats(await self._get(url, LONGEST_GATEWAY_STATS))
        except Exception as error:
            _find_fault(url, error)
        self._observe("gateway", stats is not None, time.monotonic() - began)
        return stats

    async def _read_answer(self, url: str, request: StatsRequest, keys: Sequence[str]) -> bytes:
        """Raises :class:`LimitsUnavailable` where the engine answers that it lacks what is read."""
        for key in keys if request.needs_key and keys else ("",):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with self._open_session().get(url + request.path, headers=headers, allow_redirects=False) as response:
                if response.status == 200:
                    return await _read_body(response, request.longest, request.samples)
                if response.status == 501 or (response.status == 404 and request.needs_key):
                    # A route with a key is the operator's own: without it nothing is there that it could steer.
                    text = (await _read_body(response, LONGEST_ANSWER)).decode(errors="replace")
                    raise LimitsUnavailable(f"{request.path}: HTTP {response.status}: {text[:300]}")
        raise OSError(f"HTTP {response.status}: {_find_remedy(response.status, request.needs_key)}")

    async def _get(self, url: str, longest: int) -> bytes:
        async with self._open_session().get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise OSError(f"HTTP {response.status}")
            return await _read_body(response, longest)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=bounded_connector(),
                read_bufsize=READ_BUFFER,
                timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
                auto_decompress=False,
                headers={"Accept-Encoding": "identity"},
            )
        return self._session


class _ReadEngine(NamedTuple):
    """What came of reading one engine."""

    stats: EngineStats | None
    fault: str = ""
    """What is wrong with its answers, or why no call moves its limits."""
    failed_call: str = ""
    """The call for want of which there are no stats: its URL, what came of it, and what to do."""


class _CallFailed(Exception):
    """A call that had no answer in time, or one with another status than 200."""


def _find_remedy(status: int, sends_key: bool) -> str:
    """What to do about an engine's answer to a request for its numbers."""
    if status in (401, 403):
        if sends_key:
            return "it accepts none of the fleet's admin keys: let it read the folder of keys that the operator mounts"
        return "the operator reads this path without a key: let the engine answer it without one"
    if status == 404:
        return "start the engine with its metrics on, or set engine.runtime.type to the engine that runs there"
    return "redirects are not followed" if status < 400 else "look at the engine's log"


class _TooLong(ValueError):
    """An answer that is longer than any can be."""


async def _read_body(response: aiohttp.ClientResponse, longest: int, samples: frozenset[str] = frozenset()) -> bytes:
    """The body, or those of its lines that have ``samples``; raises :class:`_TooLong` above ``longest`` bytes."""
    sample_filter, body, size = SampleFilter(samples) if samples else None, bytearray(), 0
    async for piece in response.content.iter_chunked(2**16):
        size += len(piece)
        if size > longest:
            raise _TooLong(f"the answer is longer than {longest} bytes")
        if sample_filter is None:
            body += piece
        else:
            sample_filter.feed(piece)
    return bytes(body) if sample_filter is None else sample_filter.finish()


async def _parse_gateway_stats(answer: bytes) -> GatewayStats:
    """The stats in ``answer``; other tasks run between two slices of its models, and the first fault ends it."""
    document = bounded_json(answer, paths.STATS)
    models = document.pop("models", {}) if isinstance(document, dict) else None
    if not isinstance(models, dict) or len(models) > MOST_MODELS or max(map(len, models), default=0) > LONGEST_NAME:
        most = f"{MOST_MODELS}, with names of at most {LONGEST_NAME} characters"
        raise StatsUnavailable(f"{paths.STATS} is no object with models: must be at most {most}")
    stats = GatewayStats.model_validate(document)
    for number, (name, numbers) in enumerate(models.items(), 1):
        stats.models[name] = GatewayModelStats.model_validate(numbers)
        if number % MODELS_AT_ONCE == 0:
            await asyncio.sleep(0)
    object.__setattr__(stats, "__pydantic_fields_set__", _NO_FIELDS)
    return stats


def _find_fault(url: str, error: Exception) -> str:
    """What is wrong with the answers at ``url``; empty where ``error`` is that there are none."""
    log.debug("%s: %s", url, error_text(error))
    if isinstance(error, (aiohttp.ClientError, OSError)):
        return ""
    if isinstance(error, (StatsUnavailable, _TooLong)):
        return str(error)
    return f"its answers cannot be read: {type(error).__name__}: {error_text(error)[:200]}"


def held_by_fleet(gateways: Iterable[GatewayStats]) -> dict[str, int]:
    """Requests that found no replica, and are held or were refused for now, by uid of the LLMDeployment."""
    held: Counter[str] = Counter()
    for stats in gateways:
        for numbers in stats.models.values():
            held[numbers.fleet] += numbers.held + numbers.refused
    return dict(held)


def requests_by_gateway(gateways: Iterable[GatewayStats], fleet: str) -> dict[str, int]:
    """Requests for the LLMDeployment with the uid ``fleet`` that have come to each gateway process, by its instance."""
    return {
        stats.instance: sum(numbers.requests_total for numbers in stats.models.values() if numbers.fleet == fleet)
        for stats in gateways
    }


def idle_by_fleet(gateways: Iterable[GatewayStats]) -> dict[str, float]:
    """Seconds since the last request, by uid of the LLMDeployment, as far as any gateway has had one for it."""
    idle: dict[str, float] = {}
    for stats in gateways:
        for numbers in stats.models.values():
            if numbers.idle_seconds is not None:
                idle[numbers.fleet] = min(numbers.idle_seconds, idle.get(numbers.fleet, numbers.idle_seconds))
    return idle


def count_routing(gateways: Iterable[GatewayStats], names: Sequence[str], fleet: str) -> int:
    """How many of them send requests for all ``names`` of a model, its first name first, to the fleet with that uid."""
    if not names:
        return 0
    routes = [route for stats in gateways if (route := stats.models.get(names[0])) is not None]
    return sum(route.fleet == fleet and {*names[1:]} <= {*route.aliases} for route in routes)


async def resolve_addresses(url: str) -> list[str]:
    """``url`` once for each address its host has: a headless Service names every pod. Raises ``OSError``."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    hosts = sorted({str(address[0]) for *_, address in found})
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return [join_base_url(host, port, parts.scheme) for host in hosts]
