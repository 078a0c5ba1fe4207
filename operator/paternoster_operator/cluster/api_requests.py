"""Single requests to the API server: their errors in its own words, and the pauses that it asks for."""

import json
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import ClientError, ClientResponse
from kubernetes.aio.client import ApiException
from kubernetes.aio.dynamic import DynamicClient

from paternoster_contract.error_text import error_text
from paternoster_operator.cluster.port import ClusterError, NamespaceEnding, Object
from paternoster_operator.pods.reading import LONGEST_MESSAGE

REQUEST_TIMEOUT_SECONDS = 10
_PERMANENT = frozenset({400, 403, 405, 422})
"""Refusals that the same request would meet again."""
_KIND_UNKNOWN = "no matches for kind"
"""Text in a 403 by admission that looks up the owner's kind, while the CRD is not known everywhere."""
LONGEST_ANSWER = 64 * 2**20
"""Bytes: a list of the pods of a target has some 10 KiB for each."""
LONGEST_PAUSE_SECONDS = 10.0
"""Pause that an API server may ask for (``Retry-After``)."""


class RequestTraffic(Protocol):
    """Counters of requests, and of objects that are written, by the kind of their objects."""

    def count_request(self, method: str, resource: str, code: int, seconds: float) -> None: ...

    def count_write(self, kind: str, reason: str) -> None: ...


class ApiRequests:
    """Requests of one operator; after a 429 none is sent before the ``Retry-After`` of the answer is over."""

    def __init__(
        self,
        client: DynamicClient,
        traffic: RequestTraffic | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._traffic = traffic
        self._clock = clock
        self._paused_until = float("-inf")
        """On the clock."""

    async def send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        ignore: tuple[int, ...] = (),
        longest: int = LONGEST_ANSWER,
        **params: Any,
    ) -> Mapping[str, Any] | None:
        """One request and its answer, None where it met ``ignore``; one of more than ``longest`` bytes is an error.

        Raises :class:`ClusterError` with the server's own words; without a request, where a pause that the server asked
        for is not over.
        """
        pause = self._paused_until - self._clock()
        if pause > 0:
            raise ClusterError(
                f"{method.upper()} {path}: not sent: the API server asked for a pause (429), of which {pause:.0f} s "
                "are left",
                retry_after_seconds=pause,
            )
        code, began = 0, self._clock()
        try:
            answer = await self._client.request(
                method, path, body=body, serialize=False, _request_timeout=REQUEST_TIMEOUT_SECONDS, **params
            )
            code = answer.status
            document: Mapping[str, Any] = json.loads(await read_bounded(answer, longest))
            return document
        except ApiException as error:
            code = error.status
            if error.status in ignore and (error.status != HTTPStatus.NOT_FOUND or _is_status(error)):
                return None
            message = f"{method.upper()} {path}: HTTP {error.status}: {_read_message(error)}"
            if _is_namespace_ending(error):
                raise NamespaceEnding(message) from error
            retriable = error.status not in _PERMANENT or _KIND_UNKNOWN in message
            pause = parse_retry_after(error.headers) if code == HTTPStatus.TOO_MANY_REQUESTS else 0.0
            self._paused_until = max(self._paused_until, self._clock() + pause)
            raise ClusterError(message, retriable=retriable, retry_after_seconds=pause) from error
        except (ClientError, OSError, TimeoutError, ValueError) as error:  # the last: too long, or no JSON
            raise ClusterError(f"{method.upper()} {path}: {error_text(error)}") from error
        finally:
            if self._traffic is not None:
                self._traffic.count_request(method, _find_plural(path), code, self._clock() - began)


async def read_bounded(answer: ClientResponse, longest: int) -> bytearray:
    """The body of ``answer``; raises ``ValueError`` for one of more than ``longest`` bytes."""
    body = bytearray()
    async for piece in answer.content.iter_chunked(2**16):
        body += piece
        if len(body) > longest:
            answer.close()
            raise ValueError(f"the answer is longer than {longest} bytes")
    return body


def parse_retry_after(headers: Mapping[str, str] | None) -> float:
    """Seconds that an API server asks to wait for, at most :data:`LONGEST_PAUSE_SECONDS`; 0 where it does not."""
    seconds = (headers or {}).get("Retry-After", "")
    return min(float(seconds), LONGEST_PAUSE_SECONDS) if seconds.isascii() and seconds.isdigit() else 0.0


def _find_plural(path: str) -> str:
    """The kind that a path is of, such as ``services`` or ``llmdeployments/status``."""
    parts = path.partition("?")[0].split("/")
    after = parts[parts.index("namespaces") + 2 :]  # behind them: the kind, a name and a subresource
    return "/".join((after[0], *after[2:]))


def _is_status(error: ApiException) -> bool:
    """Whether the API server itself refused: what stands before it answers 404 for objects that are there, too."""
    try:
        return bool(json.loads(error.body or "")["kind"] == "Status")
    except (ValueError, TypeError, KeyError):
        return False


def _is_namespace_ending(error: ApiException) -> bool:
    """Whether the API server refused because the namespace is being deleted (403), or is gone (404)."""
    try:
        details = json.loads(error.body or "")["details"]
        causes = [cause["reason"] for cause in details.get("causes") or ()]
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    gone = error.status == HTTPStatus.NOT_FOUND and details.get("kind") == "namespaces"
    return gone or (error.status == HTTPStatus.FORBIDDEN and "NamespaceTerminating" in causes)


def _read_message(error: ApiException) -> str:
    """The message of the API server's Status object, or what there is instead."""
    try:
        return str(json.loads(error.body or "")["message"])[:LONGEST_MESSAGE]
    except (ValueError, TypeError, KeyError):
        return str(error.reason)
