"""The servers of a picker: its streams and its health by gRPC, its statistics by HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import add_ExternalProcessorServicer_to_server
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from starlette.applications import Starlette

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import GATEWAY_TO_ENGINE, GATEWAY_TO_OPERATOR
from paternoster_contract.http.base_url import join_base_url
from paternoster_contract.routing import RoutingTable
from paternoster_contract.supervise import supervise_task
from paternoster_gateway.app import build_number_routes, install_error_handlers
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.picker.exchange import MAX_CHUNK_BYTES
from paternoster_gateway.picker.limits import PickerLimits
from paternoster_gateway.picker.service import Picker
from paternoster_gateway.process.drain import Shutdown
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.sent_keys import SentKeys
from paternoster_gateway.table.source import Origin, TableSource
from paternoster_gateway.text_chains.follower import TextChainFollower
from paternoster_http.errors.request_id import RequestId
from paternoster_http.errors.unforeseen import UnforeseenErrors
from paternoster_http.request_line import CanonicalRequestLine

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
LIVENESS, READINESS = "liveness", "readiness"
MAX_MESSAGE_BYTES = 2**21
"""Limit for one message of Envoy's: a piece of a body is 64 KiB at most, and headers are 1 MiB at most."""


@dataclass(frozen=True, slots=True)
class PickerPorts:
    """Ports of a picker; 0 is any free one."""

    host: str
    picks: int
    health: int


class PickerHealth:
    """The gRPC service of health checks: ready with a routing table, until a shutdown begins."""

    def __init__(self, source: TableSource, shutdown: Shutdown) -> None:
        self._source = source
        self._shutdown = shutdown

    async def check(self, request: Any, context: Any) -> HealthCheckResponse:
        """Answer for one of the services by name, or for all."""
        if request.service not in ("", LIVENESS, READINESS, SERVICE):
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        is_ready = self._source.has_table and not self._shutdown.begun
        is_serving = is_ready or request.service == LIVENESS
        return HealthCheckResponse(
            status=HealthCheckResponse.SERVING if is_serving else HealthCheckResponse.NOT_SERVING
        )

    def add_to_server(self, server: Any) -> None:
        """Serve ``Check`` alone, which kubelets and Envoy call: another method is UNIMPLEMENTED."""
        check = grpc.unary_unary_rpc_method_handler(
            self.check, HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check}),)
        )


@dataclass(slots=True)
class RunningPicker:
    """A picker that listens."""

    app: Starlette
    """Application with its probes and statistics."""
    picks: str
    """Address of its streams."""
    health: str
    """Address of its health."""
    picker: Picker
    source: TableSource


@asynccontextmanager
async def run_picker(
    routes: str,
    ports: PickerPorts,
    limits: PickerLimits,
    shutdown: Shutdown,
    *,
    engine_key: Path | None = None,
    last_routes: Path | None = None,
    drain_seconds: float = 0,
) -> AsyncIterator[RunningPicker]:
    """A picker over the routing table at ``routes``, as the gateway's; raises ``OSError`` where a port cannot be had.

    At the end of the block, streams of answers are closed cleanly, and requests that wait for a replica have
    ``drain_seconds`` to get one.
    """
    roots = KeyFiles(engine_key) if engine_key else None
    metrics = GatewayMetrics()
    dispatcher = Dispatcher(Balancer(metrics.instance))
    keys = SentKeys(roots, GATEWAY_TO_ENGINE)
    follower = TextChainFollower(dispatcher.balancer.prefixes, keys, metrics)

    def on_table_change(table: RoutingTable) -> None:
        dispatcher.change_table(table)
        follower.follow_table(table)
        metrics.retain_only(table.models)

    source = TableSource(routes, on_table_change, SentKeys(roots, GATEWAY_TO_OPERATOR), last_routes)
    metrics.table_age.set_function(lambda: source.age_seconds or 0.0)
    metrics.table_from_copy.set_function(lambda: source.origin is Origin.COPY)

    picker = Picker(dispatcher, source.require_table, keys, metrics, limits, shutdown)
    picks = grpc.aio.server(
        options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES + MAX_CHUNK_BYTES), ("grpc.so_reuseport", 0)],
        maximum_concurrent_rpcs=2 * limits.max_streams,
    )
    add_ExternalProcessorServicer_to_server(picker, picks)
    health = grpc.aio.server(options=[("grpc.so_reuseport", 0)], maximum_concurrent_rpcs=64)
    PickerHealth(source, shutdown).add_to_server(health)
    addresses = [_listen(picks, ports.host, ports.picks), _listen(health, ports.host, ports.health)]
    app = Starlette(routes=build_number_routes(source, dispatcher, metrics, shutdown))
    app.router.redirect_slashes = False
    install_error_handlers(app)
    # The middleware added last is the outermost.
    app.add_middleware(UnforeseenErrors)
    app.add_middleware(RequestId)
    app.add_middleware(CanonicalRequestLine)
    await follower.open_session()
    following = supervise_task(source.follow_table, "follow-table")
    await asyncio.gather(picks.start(), health.start())
    try:
        yield RunningPicker(app, addresses[0], addresses[1], picker, source)
    finally:
        shutdown.begun = True
        picker.release_answers()
        await picks.stop(drain_seconds)
        await health.stop(0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await follower.close()


def _listen(server: Any, host: str, port: int) -> str:
    """The address of ``server``, which is to listen there; raises ``OSError``."""
    address = join_base_url(host, port).partition("://")[2]
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"{address}: {error}") from error
    return join_base_url(host, port).partition("://")[2]
