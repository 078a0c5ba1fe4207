"""The connections of one gateway to replicas."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus

import aiohttp

from paternoster_contract.access.identity import HEADER, LANE_HEADER, Lane
from paternoster_contract.http import paths
from paternoster_contract.routing import Replica
from paternoster_contract.stream_journal import JOURNAL
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.proxy.body import rename_in_body
from paternoster_gateway.routing.limits import PROBE_SECONDS
from paternoster_gateway.sent_keys import SentKeys
from paternoster_http.bounded_answers import READ_BUFFER, bounded_connector


class ReplicaClient:
    """Sends calls and probes to replicas, with the gateway's key."""

    def __init__(self, keys: SentKeys, find_health_path: Callable[[str], str]) -> None:
        """``find_health_path``: of the replica at a URL."""
        self._keys = keys
        self._find_health_path = find_health_path
        self._opened: aiohttp.ClientSession | None = None

    async def open_session(self) -> None:
        self._opened = aiohttp.ClientSession(
            connector=bounded_connector(limit=0),
            read_bufsize=READ_BUFFER,
            timeout=aiohttp.ClientTimeout(total=None, connect=5),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        )

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        assert self._opened is not None
        return self._opened

    async def post(self, replica: Replica, call: Call, admission: ClientAdmission) -> aiohttp.ClientResponse:
        url = replica.url + call.path
        identity = {} if admission.identity is None else {HEADER: admission.identity.encode()}
        if admission.lane is not Lane.ONLINE:
            identity[LANE_HEADER] = admission.lane.encode()
        upstream = replica.upstream_model
        body = await rename_in_body(call.body, upstream) if upstream else call.body

        async def send(key: Mapping[str, str]) -> aiohttp.ClientResponse:
            data: bytes | AsyncIterator[bytes] = body
            headers = {**call.headers, **identity, **key}
            if replica.upstream_model:
                headers["accept-encoding"] = "identity"  # the name in the answer is replaced
            if call.journal:
                data = _send_parts(body, call.journal)
                headers["Content-Length"] = str(len(body) + len(call.journal))
            # Request and key do not follow a redirect of an engine.
            return await self._session.post(url, data=data, headers=headers, allow_redirects=False)

        return await self._keys.send(send, replica.url, admission.fleet)

    async def call_briefly(
        self, method: str, url: str, fleet: str | None, headers: Mapping[str, str]
    ) -> tuple[int, str | None] | None:
        """Status and :data:`JOURNAL` of a short answer; None where there is none in time.

        ``fleet``: whose key is sent.
        """

        async def send(key: Mapping[str, str]) -> aiohttp.ClientResponse:
            return await self._session.request(method, url, headers={**headers, **key}, allow_redirects=False)

        try:
            async with asyncio.timeout(PROBE_SECONDS):
                async with await (send({}) if fleet is None else self._keys.send(send, url, fleet)) as response:
                    return response.status, response.headers.get(JOURNAL)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def answers_probe(self, url: str, seconds: float) -> bool:
        """Whether the replica at ``url`` answers a health probe within ``seconds``, with any status below 500."""
        path = self._find_health_path(url)
        try:
            async with asyncio.timeout(seconds):
                status = await self._probe(url + path)
                if status == HTTPStatus.NOT_FOUND and path != paths.HEALTH:
                    status = await self._probe(url + paths.HEALTH)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        return status < HTTPStatus.INTERNAL_SERVER_ERROR

    async def _probe(self, url: str) -> int:
        async with self._session.get(url, allow_redirects=False) as response:
            return response.status


async def _send_parts(*parts: bytes) -> AsyncIterator[bytes]:
    """One body of all of them, without a copy: a body may have megabytes."""
    for part in parts:
        yield part
