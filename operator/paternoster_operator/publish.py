"""The operator's HTTP: the routing table, metrics, a probe, and the objects of a local cluster."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract import labels
from paternoster_contract.access.keys import digest_key, matches_digest, read_bearer_key
from paternoster_contract.http import paths
from paternoster_contract.routing_rows import CONTENT_TYPE
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.errors.unforeseen import UnforeseenErrors
from paternoster_http.listeners import open_listener
from paternoster_http.metrics_page import render_metrics
from paternoster_http.request_line import CanonicalRequestLine
from paternoster_http.server import BackgroundServer
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.routes.published import PublishedTable
from paternoster_operator.runtime import Operator

LIMITS = HttpLimits(
    max_header_bytes=16 * 1024, max_body_bytes=1024, max_held_body_bytes=32 * 2**20, max_connections=1024
)
"""No request to the operator has a body: what is held are answers that are not read, and 16 MiB of headers at most."""
OPEN = frozenset({paths.ROUTES, paths.SHARD_ROUTES, paths.OPERATOR_HEALTH, paths.OPERATOR_READY})
"""Without the key of who runs the operator: routes have keys of their own, and probes report nothing else."""
ASKS_FOR_KEY = {"WWW-Authenticate": "Bearer"}

PIECE_BYTES = 64 * 1024
"""Bytes of a piece of the routing table, each of which is sent once the one before it is nearly read."""


class LocalObjects(Protocol):
    """Objects of a local cluster, where no API server lists them."""

    def list_objects(self) -> Sequence[Mapping[str, Any]]: ...

    def list_all_pods(self) -> Sequence[Mapping[str, Any]]: ...


class _OwnersKey:
    """ASGI middleware: all but :data:`OPEN` is for who has the key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._digests = {digest_key(key)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN or matches_digest(_sent_key(Headers(scope=scope)), self._digests):
            await self._app(scope, receive, send)
            return
        text = "this is for the user who runs the operator: the key is in its state folder"
        await PlainTextResponse(text, 401, ASKS_FOR_KEY)(scope, receive, send)


def _sent_key(headers: Headers) -> str:
    return read_bearer_key(headers.get("Authorization", ""))


async def _cut_pieces(body: bytes) -> AsyncIterator[bytes]:
    """Pieces of a long body: what a client has not read counts for it, and a table of 16 MiB at once has no room."""
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


def _json_response(text: str) -> Response:
    return Response(text, media_type="application/json")


def _list_response(version: str, kind: str, items: Sequence[Mapping[str, Any]]) -> Response:
    return _json_response(json.dumps({"apiVersion": version, "kind": f"{kind}List", "items": list(items)}))


def build_app(operator: Operator, listing: LocalObjects | None = None, key: str | None = None) -> ASGIApp:
    """``listing`` has LLMDeployments and pods, where no API server has; with ``key``, they and metrics ask for it."""

    async def get_routes(request: Request) -> Response:
        return await answer_routes(request, operator.has_routes, operator.routes.build)

    async def get_shard_routes(request: Request) -> Response:
        return await answer_routes(request, operator.has_own_routes, operator.routes.build_for_shards)

    async def answer_routes(
        request: Request, are_read: bool, build: Callable[[], Awaitable[PublishedTable]]
    ) -> Response:
        if not are_read:
            raise HTTPException(503, "the cluster has not been read yet")
        try:
            digests = await operator.keys.routes_digests()
        except ClusterError as error:
            raise HTTPException(503, str(error)) from error
        if digests is not None and not matches_digest(_sent_key(request.headers), digests):
            raise HTTPException(401, "the routing table is for gateways", ASKS_FOR_KEY)
        table = await build()
        if CONTENT_TYPE not in request.headers.get("Accept", ""):  # gateways up to 0.2, and people
            # Such a gateway would drop them: it keeps its last table while it is answered 503.
            if table.unread and (dropped := {*table.unread_names} - table.table.first_names.keys()):
                raise HTTPException(503, f"routes that could not be built: {', '.join(sorted(dropped))}")
            return _json_response(table.table.model_dump_json())
        headers = {"ETag": table.etag}
        if request.headers.get("If-None-Match") == table.etag:
            return Response(status_code=304, headers=headers)
        size = {"Content-Type": CONTENT_TYPE, "Content-Length": str(len(table.lines))}
        return StreamingResponse(_cut_pieces(table.lines), headers=headers | size)

    async def get_metrics(_: Request) -> Response:
        text = await render_metrics(operator.metrics.registry)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def get_health(_: Request) -> Response:
        return Response(status_code=200 if operator.alive else 503)

    async def get_readiness(_: Request) -> Response:
        # Not of all shards: a Service has the pods that are ready, and they read each other's rows by Services.
        return Response(status_code=200 if operator.has_own_routes else 503)

    routes = [
        Route(paths.ROUTES, get_routes),
        Route(paths.SHARD_ROUTES, get_shard_routes),
        Route(paths.METRICS, get_metrics),
        Route(paths.OPERATOR_HEALTH, get_health),
        Route(paths.OPERATOR_READY, get_readiness),
    ]
    if (lists := listing) is not None:

        async def list_objects(_: Request) -> Response:
            return _list_response(labels.API_VERSION, labels.KIND, lists.list_objects())

        async def list_pods(_: Request) -> Response:
            return _list_response("v1", "Pod", lists.list_all_pods())

        routes += [Route(labels.OBJECTS, list_objects), Route(labels.PODS, list_pods)]
    middleware = [Middleware(CanonicalRequestLine)]
    if key is not None:
        middleware.append(Middleware(_OwnersKey, key=key))
    return Starlette(routes=routes, middleware=[*middleware, Middleware(UnforeseenErrors)])


async def serve_app(app: ASGIApp, host: str, port: int) -> tuple[BackgroundServer, int]:
    """Listen; returns the server to close and the port. Raises ``OSError`` when the port is taken."""
    listener = open_listener(host, port)
    server = BackgroundServer(app, LIMITS)
    await server.start(listener)
    return server, listener.getsockname()[1]
