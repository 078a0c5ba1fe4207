"""The operator's HTTP: the routing table, metrics, a probe, and the objects of a local cluster."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from paternoster_contract import labels
from paternoster_contract.access.keys import digest_key, matches_digest, read_bearer_key
from paternoster_contract.http import paths
from paternoster_contract.routing_rows import CONTENT_TYPE
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.runtime import Operator

HEALTH = "/healthz"
"""200 while every worker lives."""
READY = "/readyz"
"""200 once the routing table is whole, whether this operator acts or another."""

Objects = Callable[[], Sequence[Mapping[str, Any]]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(operator: Operator, objects: Objects | None = None, key: str | None = None) -> web.Application:
    """``objects`` gives all LLMDeployments, where no API server does; with ``key``, they and the metrics ask for it."""

    async def get_routes(request: web.Request) -> web.Response:
        if not operator.synced:
            raise web.HTTPServiceUnavailable(text="the cluster has not been read yet")
        try:
            digests = await operator.keys.routes_digests()
            if digests is not None and not matches_digest(
                read_bearer_key(request.headers.get("Authorization", "")), digests
            ):
                raise web.HTTPUnauthorized(
                    text="the routing table is for gateways", headers={"WWW-Authenticate": "Bearer"}
                )
        except ClusterError as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from error
        table = await operator.routes.build()
        if CONTENT_TYPE not in request.headers.get("Accept", ""):  # gateways up to 0.2, and people
            if table.unread:  # such a gateway would drop them: it keeps its last table while it is answered 503
                raise web.HTTPServiceUnavailable(text=f"routes that could not be built: {', '.join(table.unread)}")
            return web.json_response(text=table.table.model_dump_json())
        headers = {"ETag": table.etag}
        if request.headers.get("If-None-Match") == table.etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=table.lines, content_type=CONTENT_TYPE, headers=headers)

    async def get_metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(operator.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def get_health(_: web.Request) -> web.Response:
        return web.Response(status=200 if operator.alive else 503)

    async def get_readiness(_: web.Request) -> web.Response:
        return web.Response(status=200 if operator.synced else 503)

    @web.middleware
    async def check_key(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Routes have keys of their own, and probes tell nothing."""
        if key is None or request.path in (paths.ROUTES, HEALTH, READY):
            return await handler(request)
        if not matches_digest(read_bearer_key(request.headers.get("Authorization", "")), {digest_key(key)}):
            raise web.HTTPUnauthorized(
                text="this is for the user who runs the operator: the key is in its state folder",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return await handler(request)

    app = web.Application(middlewares=[check_key])
    app.add_routes(
        [
            web.get(paths.ROUTES, get_routes),
            web.get(paths.METRICS, get_metrics),
            web.get(HEALTH, get_health),
            web.get(READY, get_readiness),
        ]
    )
    if objects is not None:
        listing = objects

        async def list_objects(_: web.Request) -> web.Response:
            return web.json_response(
                {"apiVersion": labels.API_VERSION, "kind": f"{labels.KIND}List", "items": list(listing())}
            )

        app.add_routes([web.get(labels.OBJECTS, list_objects)])
    return app


async def serve_app(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Listen; returns the runner to clean up and the port. Raises ``OSError`` when the port is taken."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner, runner.addresses[0][1]
