"""The gateway's HTTP surface."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.access.identity import Lane
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import (
    BATCH_TO_GATEWAY,
    GATEWAY_TO_ENGINE,
    GATEWAY_TO_OPERATOR,
    client_key,
    digest_key,
    find_vouched,
)
from paternoster_contract.http import paths
from paternoster_contract.http.headers import DEBUG, REQUEST_ID
from paternoster_contract.http.routes import FORWARDED, PROBES
from paternoster_contract.routing import RoutingTable
from paternoster_contract.shares.rows import Sized, rows_beyond_share
from paternoster_contract.stats import FLEET, WAITING
from paternoster_contract.stream_journal import PROGRESS, STREAM_ID, StreamId
from paternoster_contract.supervise import supervise_task
from paternoster_gateway.admission.admission import admit_request, may_use, models_open_to, opens_any_model
from paternoster_gateway.admission.known_parties import KnownParties
from paternoster_gateway.admission.quarantine import Quarantine
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.errors import GatewayError, client_gone, unauthorized_error, unavailable_error
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.process.access_log import AccessLog, Forwarded, forwarded
from paternoster_gateway.process.drain import CloseDuringShutdown, Shutdown
from paternoster_gateway.process.tls import PlainHttpForProbesOnly, is_for_monitoring
from paternoster_gateway.proxy.answer import Answer
from paternoster_gateway.proxy.body import read_call
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.proxy.forwarded_answer import ClientWatch, ForwardedAnswer
from paternoster_gateway.proxy.headers import FORWARDED_HEADERS
from paternoster_gateway.proxy.liveness import Liveness
from paternoster_gateway.proxy.proxy import Proxy
from paternoster_gateway.proxy.replica_client import ReplicaClient
from paternoster_gateway.records.call_record import CallRecords
from paternoster_gateway.records.routes import build_record_routes
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.sent_keys import SentKeys
from paternoster_gateway.table.source import Origin, TableSource
from paternoster_gateway.text_chains.follower import TextChainFollower
from paternoster_http.connections import address_of
from paternoster_http.cors import allow_origins
from paternoster_http.errors.refusal import RETRY_AFTER_SECONDS, Refusal
from paternoster_http.errors.request_id import RequestId, current_request_id
from paternoster_http.errors.unforeseen import UnforeseenErrors
from paternoster_http.metrics_page import render_metrics
from paternoster_http.open_requests import charge_request, open_request_of, party_of
from paternoster_http.request_line import CanonicalRequestLine
from paternoster_http.start_turns import StartTurns
from paternoster_http.vendor_rewriting import VendorErrors

STARTED = int(time.time())
"""``created`` of a model whose row does not state when its LLMDeployment was made."""
MOST_LISTED = 2048
"""Names of models in one list, aliases included: of 400 bytes and their characters each."""
MOST_LISTED_BYTES = 256 * 2**10
"""Characters of these names."""
READ_WITHOUT_KEY = 64 * 2**10
"""Most bytes of a body that is read although its key opens no model; of a longer request only the headers are read."""


class Gateway:
    """The parts of one gateway, each made of those above it, and its answer on each route."""

    def __init__(
        self, routes: str, engine_key: Path | None, last_routes: Path | None, shutdown: Shutdown, comment_seconds: float
    ) -> None:
        """Make the parts; arguments are those of :func:`create_app`."""
        self._shutdown = shutdown
        self._comment_seconds = comment_seconds
        self._known_parties, self._turns = KnownParties(), StartTurns()
        self._metrics = GatewayMetrics()
        self._quarantine = Quarantine()
        self._dispatcher = Dispatcher(Balancer(self._metrics.instance))
        self._roots = roots = KeyFiles(engine_key) if engine_key else None
        keys, balancer = SentKeys(roots, GATEWAY_TO_ENGINE), self._dispatcher.balancer
        self._client = ReplicaClient(keys, lambda url: balancer.table.health_path(url))
        self._liveness = Liveness(
            self._client.answers_probe, lambda url: balancer.table.has_replica(url),
            on_hang=self._on_hang, on_recovery=self._on_recovery, on_quiet=self._on_quiet,
        )  # fmt: skip
        self._metrics.hung_gauge.set_function(lambda: len(self._liveness.hung))
        self._records = CallRecords()
        self._proxy = Proxy(
            self._dispatcher, self._metrics, self._client, self._liveness, self._quarantine, self._records
        )
        self._follower = TextChainFollower(balancer.prefixes, keys, self._metrics)
        self._source = TableSource(routes, self._on_table, SentKeys(roots, GATEWAY_TO_OPERATOR), last_routes)
        self._metrics.table_age.set_function(lambda: self._source.age_seconds or 0.0)
        self._metrics.table_from_copy.set_function(lambda: self._source.origin is Origin.COPY)

    def _on_hang(self, url: str, last_byte: float) -> None:
        self._metrics.hangs.inc()
        self._quarantine.on_replica_hung(url, last_byte, time.monotonic())
        self._dispatcher.report_hung(url, True)

    def _on_recovery(self, url: str) -> None:
        self._dispatcher.report_hung(url, False)

    def _on_quiet(self, url: str) -> None:
        self._quarantine.forget_left(url)
        self._dispatcher.report_hung(url, False)

    def _on_table(self, table: RoutingTable) -> None:
        self._dispatcher.change_table(table)
        self._proxy.hand_streams_over()
        self._follower.follow_table(table)
        self._metrics.retain_only(table.models)

    @asynccontextmanager
    async def run(self, _: Starlette) -> AsyncIterator[None]:
        """Follow the routing table, and whatever it lists, for as long as the application runs."""
        await self._client.open_session()
        await self._follower.open_session()
        following = supervise_task(self._source.follow_table, "follow-table")
        yield
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await self._follower.close()
        await self._liveness.close()
        await self._proxy.close()
        await self._client.close()

    async def forward(self, route: str, request: Request) -> Response:
        """Answer a call; ``route``: its path as the router has it, so that its values are few."""
        started, details = time.monotonic(), forwarded.get() or Forwarded()
        model = ""
        try:
            (key_digest, lane), table = self._find_sender(request), self._source.require_table()
            if lane is Lane.ONLINE and (party := self._known_parties.party_of(key_digest, table)) is not None:
                charge_request(request.scope, party)
            await self._turns.wait_turn(party_of(request.scope))
            call = await _read_call(request, key_digest, self._source.table, streams=self._comment_seconds > 0)
            table = self._source.table
            # The first of its names: a model has one series of each metric.
            details.model = model = table.first_names.get(call.model, "")
            # A client without a key is refused before anything else is done or counted for the model.
            peer = address_of(request.client.host) if request.client else ""
            admission = admit_request(
                table, call.model, key_digest, time.time(), peer=peer, named=call.named, lane=lane
            )
            details.tenant = "" if admission.identity is None else admission.identity.tenant
            self._known_parties.add_party(admission)
            charge_request(request.scope, admission.party)
        except (GatewayError, Refusal) as fault:
            return self._count_refusal(model, route, fault)[1]

        def count_answer(answer: Answer) -> None:
            details.upstream_host, details.upstream_request_attempt_count = answer.replica, answer.attempts
            label = self._metrics.label_of(model)
            self._metrics.first_byte.labels(label, route).observe(time.monotonic() - started)
            self._metrics.requests.labels(label, route, str(answer.status)).inc()

        self._metrics.begin_request(model, lane)
        return ForwardedAnswer(
            call, ClientWatch(request.receive), send_call=partial(self._proxy.send, call, admission),
            comment_seconds=self._comment_seconds if call.is_stream else 0, on_answer=count_answer,
            refuse=partial(self._count_refusal, model, route),
            on_end=partial(self._metrics.end_request, model, admission.fleet, lane),
        )  # fmt: skip

    def _find_sender(self, request: Request) -> tuple[str, Lane]:
        """Digest of the client's key, or of that on whose behalf the batch service sends a line; and the lane."""
        vouched = None if self._roots is None else find_vouched(request.headers, self._roots.keys, BATCH_TO_GATEWAY)
        return (digest_key(client_key(request.headers)), Lane.ONLINE) if vouched is None else (vouched, Lane.BATCH)

    def _count_refusal(self, model: str, route: str, fault: GatewayError | Refusal) -> tuple[GatewayError, Response]:
        # Frames of its traceback have it in variables: a cycle, in which the body would stay until a collection.
        fault.__traceback__ = fault.__context__ = None
        error = unavailable_error(str(fault), RETRY_AFTER_SECONDS) if isinstance(fault, Refusal) else fault
        self._metrics.failures[model] += 1
        self._metrics.requests.labels(self._metrics.label_of(model), route, str(error.status)).inc()
        return error, JSONResponse(error.to_body(), error.status, error.to_headers())

    async def list_models(self, request: Request) -> Response:
        return self._describe(describe_models, request)

    async def get_model(self, request: Request) -> Response:
        model = request.path_params["model"]
        return self._describe(lambda table, key_digest: describe_model(table, model, key_digest), request)

    def _describe(self, describe: Callable[[RoutingTable, str], Mapping[str, object]], request: Request) -> Response:
        try:
            return JSONResponse(describe(self._source.require_table(), self._find_sender(request)[0]))
        except GatewayError as error:
            return JSONResponse(error.to_body(), error.status, error.to_headers())

    def build_routes(self) -> list[Route]:
        """Routes that forward calls, list models, and answer probes, statistics and records of calls."""
        return [
            *(Route(path, partial(self.forward, path), methods=["POST"]) for path in FORWARDED),
            Route(paths.MODELS, self.list_models),
            Route(paths.MODEL, self.get_model),
            *build_number_routes(self._source, self._dispatcher, self._metrics, self._shutdown),
            *build_record_routes(self._records, self._roots),
        ]


def create_app(
    routes: str,
    *,
    engine_key: Path | None = None,
    last_routes: Path | None = None,
    shutdown: Shutdown | None = None,
    origins: Sequence[str] = (),
    stats_port: int | None = None,
    only_probes_in_plain: bool = False,
    access_log: Callable[[str], object] | None = None,
    comment_seconds: float = 15,
) -> Starlette:
    """Build the gateway over the routing table at ``routes``, a URL or a file.

    ``engine_key``: where the root keys are from which the keys that it sends are made; without it, it sends none.
    ``last_routes``: a file with a copy of the table, used until one was read from ``routes``. ``shutdown``: whether the
    process has begun to end. ``origins``: web pages that may call the gateway. ``stats_port``: the only port with
    statistics, where they have one. ``only_probes_in_plain``: it serves HTTPS, and without TLS only probes and
    statistics. ``access_log``: called with a line for each answer. ``comment_seconds`` of silence, after which an event
    stream gets a comment; 0 for none.
    """
    shutdown = shutdown or Shutdown()
    gateway = Gateway(routes, engine_key, last_routes, shutdown, comment_seconds)
    app = Starlette(routes=gateway.build_routes(), lifespan=gateway.run)
    app.router.redirect_slashes = False
    install_error_handlers(app)
    # The middleware added last is the outermost.
    app.add_middleware(UnforeseenErrors)
    allow_origins(app, origins)
    if stats_port is not None:
        app.add_middleware(StatsPort, port=stats_port)
    if only_probes_in_plain:
        app.add_middleware(PlainHttpForProbesOnly)
    app.add_middleware(VendorErrors)
    app.add_middleware(CloseDuringShutdown, shutdown=shutdown)
    if access_log is not None:
        app.add_middleware(AccessLog, write=access_log)
    app.add_middleware(RequestId)
    app.add_middleware(CanonicalRequestLine)
    return app


def build_number_routes(
    source: TableSource, dispatcher: Dispatcher, metrics: GatewayMetrics, shutdown: Shutdown
) -> list[Route]:
    """The routes of probes and statistics."""

    async def check_health(_: Request) -> Response:
        return Response(status_code=200)

    async def check_readiness(_: Request) -> Response:
        age = source.age_seconds
        table = {"from": source.origin, "age_seconds": None if age is None else round(age, 1)}
        status = "ending" if shutdown.begun else "ready" if source.has_table else "no routing table"
        return JSONResponse({"status": status, "routing_table": table}, 200 if status == "ready" else 503)

    async def report_stats(request: Request) -> Response:
        table, query, only = source.table, request.query_params, None
        if (fleet := query.get(FLEET)) is not None:
            only = table.names_by_fleet.get(fleet, [])
        elif WAITING in query:
            only = dispatcher.list_waiting()
        numbers = metrics.build_stats(table.models, dispatcher.count_held, dispatcher.count_rejected, only)
        return Response(numbers.model_dump_json(), media_type="application/json")

    async def export_metrics(_: Request) -> Response:
        # As at each table: an answer that began while the model was in the table may have ended since.
        metrics.retain_only(source.table.models)
        metrics.set_gauges(dispatcher.count_held)
        return Response(await render_metrics(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [
        Route(paths.HEALTH, check_health),
        Route(paths.READY, check_readiness),
        Route(paths.STATS, report_stats),
        Route(paths.METRICS, export_metrics),
    ]


def describe_models(table: RoutingTable, key_digest: str) -> dict[str, object]:
    """The models that the key of ``key_digest`` opens, as OpenAI lists them."""
    listed, left_out = share_models(table, models_open_to(table, key_digest, time.time()))
    names = [
        name
        for first in listed
        for route in (table.models[first],)
        for name in (
            *(first, *route.aliases),
            *(adapter.name for adapter in route.adapters if may_use(adapter, key_digest)),
        )
    ]
    document: dict[str, object] = {"object": "list", "data": [_model_card(table, name) for name in names]}
    return document | {"left_out": left_out} if left_out else document


def describe_model(table: RoutingTable, model: str, key_digest: str) -> dict[str, object]:
    """The model with the name ``model``; raises :class:`GatewayError` where the key does not open it."""
    admit_request(table, model, key_digest, time.time())
    return _model_card(table, model)


def share_models(table: RoutingTable, models: Sequence[str]) -> tuple[list[str], int]:
    """Models that one list has room for, shared out by namespace, and how many are left out.

    A namespace has first what was made first.
    """
    listed = list(models)
    for capacity, count_size in ((MOST_LISTED, lambda _: 1), (MOST_LISTED_BYTES, len)):
        sized = [
            Sized(name, row.namespace, sum(map(count_size, (name, *row.names))), row.created or STARTED)
            for name in listed
            for row in (table.models[name],)
        ]
        if sum(row.size for row in sized) > capacity:
            beyond = rows_beyond_share(sized, capacity)
            listed = [name for name in listed if name not in beyond]
    return listed, len(models) - len(listed)


def _model_card(table: RoutingTable, name: str) -> dict[str, object]:
    """The model with ``name`` as OpenAI lists it, with the first of its names as ``root``.

    An adapter is its own ``root``, and the model its ``parent``: where its files are is no matter of clients.
    With ``max_model_len`` (vLLM's name) and ``default_parameters`` (OpenRouter's) once its engines have reported them.
    """
    first = table.first_names[name]
    route = table.models[first]
    created = STARTED if route.created is None else route.created
    card: dict[str, object] = {"id": name, "object": "model", "created": created, "owned_by": "paternoster"}
    card |= {"root": first, "parent": None} if route.find_adapter(name) is None else {"root": name, "parent": first}
    if route.max_model_len is not None:
        card["max_model_len"] = route.max_model_len
    if route.default_parameters is not None:
        card["default_parameters"] = route.default_parameters.list_set_values()
    return card


async def _read_call(request: Request, key_digest: str, table: RoutingTable, *, streams: bool) -> Call:
    """Read the whole request, since it may have to be sent twice. Raises :class:`GatewayError`.

    With a key that opens no model only a short body is read, for the model's name in the metrics. ``streams``: comments
    may stand in event streams, which are not compressed then.
    """
    length = request.headers.get("content-length", "")
    short = length.isdecimal() and int(length) <= READ_WITHOUT_KEY
    if not short and not opens_any_model(table, key_digest):
        raise unauthorized_error()
    try:
        body = await request.body()
    except ClientDisconnect:
        raise client_gone() from None
    headers = {name: value for name, value in request.headers.items() if name in FORWARDED_HEADERS}
    headers[REQUEST_ID] = current_request_id.get()
    headers[STREAM_ID] = StreamId(uuid.uuid4().hex, int(time.time())).encode()
    headers[PROGRESS] = "1"
    call = await read_call(
        request.scope["path"], body, key_digest, table, headers, open_request_of(request.scope),
        debug=DEBUG in request.headers,
    )  # fmt: skip
    if streams and call.is_stream:
        headers["accept-encoding"] = "identity"
    return call


def install_error_handlers(app: Starlette) -> None:
    """Have ``app`` answer unknown paths and methods, and its own faults, with an OpenAI error body."""

    async def answer_refusal(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        refusal = GatewayError(error.status_code, _error_type(error.status_code), error.detail)
        return JSONResponse(refusal.to_body(), refusal.status, error.headers)

    async def answer_fault(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse(GatewayError(500, "InternalServerError", "Internal server error").to_body(), 500)

    app.add_exception_handler(HTTPException, answer_refusal)
    app.add_exception_handler(Exception, answer_fault)


def _error_type(status: int) -> str:
    return {404: "NotFoundError", 405: "MethodNotAllowedError"}.get(status, HTTPStatus(status).phrase)


class StatsPort:
    """Middleware: serves statistics and records of calls on ``port`` alone, and nothing else but probes there.

    They cover every model and tenant, so clients must not read them.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The port that the connection came to, whatever its Host header says.
        if (
            scope["type"] != "http"
            or scope["path"] in PROBES
            or self._on_port(scope) == is_for_monitoring(scope["path"])
        ):
            await self._app(scope, receive, send)
            return
        error = GatewayError(404, "NotFoundError", "There is nothing at this path of this port.")
        await JSONResponse(error.to_body(), error.status)(scope, receive, send)

    def _on_port(self, scope: Scope) -> bool:
        return bool(scope["server"][1] == self._port)
