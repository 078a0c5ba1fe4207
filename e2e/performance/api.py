"""An API server as the scale test needs it: JSON requests and watches, many at a time, without a client's limits."""

import asyncio
import json
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp

Document = dict[str, Any]

MERGE = "application/merge-patch+json"
LONGEST_LINE = 4 * 2**20
"""A watch sends an object per line."""


class ApiError(Exception):
    """The API server refused; ``status`` is the HTTP status, the text is the server's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class Api:
    """The cluster of a kubeconfig that has a token in it, as :class:`paternoster_e2e.cluster.pki.Pki` writes it."""

    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self._server = cluster["server"]
        self._authority = cluster["certificate-authority-data"]
        self._headers = {"Authorization": f"Bearer {document['users'][0]['user']['token']}"}

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cadata=b64decode(self._authority).decode())
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            headers=self._headers,
            read_bufsize=LONGEST_LINE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(
        self, method: str, path: str, body: Document | None = None, content_type: str = "application/json"
    ) -> Document:
        """One request and its answer; raises :class:`ApiError`."""
        data = None if body is None else json.dumps(body)
        async with self._session.request(
            method, self._server + path, data=data, headers={"Content-Type": content_type}
        ) as response:
            answer: Document = await response.json()
            if response.status >= 400:
                raise ApiError(response.status, answer.get("message", ""))
            return answer

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[tuple[str, Document]]:
        """What happens to the objects of ``path``, for ever: (type, object), those that are there already as ADDED.

        Where the server ends a watch it goes on from the last event; where that is too long ago, every object comes
        anew, so that the caller must not count events.
        """
        version = "0"
        while True:
            query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3000", **(params or {})}
            async with self._session.get(self._server + path, params=query) as response:
                if response.status == HTTPStatus.TOO_MANY_REQUESTS:  # for a moment, of a kind whose CRD is new
                    await asyncio.sleep(1)
                    continue
                if response.status != HTTPStatus.OK:
                    raise ApiError(response.status, await response.text())
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = "0"
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event["type"], event["object"]
