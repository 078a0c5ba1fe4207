"""The gateway's HTTP surface."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import GATEWAY_TO_ENGINE, GATEWAY_TO_OPERATOR, client_key
from paternoster_contract.http import paths
from paternoster_contract.http.headers import DEBUG, REQUEST_ID
from paternoster_contract.http.routes import FORWARDED, NUMBERS, PROBES, STREAMED
from paternoster_contract.routing import RoutingTable
from paternoster_contract.shares.rows import Sized, rows_beyond_share
from paternoster_contract.stats import FLEET, WAITING
from paternoster_contract.stream_journal import PROGRESS, STREAM_ID, StreamId
from paternoster_contract.supervise import supervise_task
from paternoster_gateway.admission.admission import admit_request, models_open_to, only_model, opens_any_model
from paternoster_gateway.admission.known_parties import KnownParties
from paternoster_gateway.admission.quarantine import Quarantine
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.errors import GatewayError, client_gone, unauthorized_error, unavailable_error
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.process.access_log import AccessLog, Forwarded, forwarded
from paternoster_gateway.process.drain import CloseDuringShutdown, Shutdown
from paternoster_gateway.process.tls import PlainHttpForProbesOnly
from paternoster_gateway.proxy.answer import Answer
from paternoster_gateway.proxy.body import read_fields, refuse_costly
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.proxy.forwarded_answer import ClientWatch, ForwardedAnswer
from paternoster_gateway.proxy.headers import FORWARDED_HEADERS
from paternoster_gateway.proxy.liveness import Liveness
from paternoster_gateway.proxy.proxy import Proxy
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
) -> FastAPI:
    """Build the gateway over the routing table at ``routes``, a URL or a file.

    ``engine_key``: where the root keys are from which the keys that it sends are made; without it, it sends none.
    ``last_routes``: a file with a copy of the table, used until one was read from ``routes``. ``shutdown``: whether the
    process has begun to end. ``origins``: web pages that may call the gateway. ``stats_port``: the only port with
    statistics, where they have one. ``only_probes_in_plain``: it serves HTTPS, and without TLS only probes and
    statistics. ``access_log``: called with a line for each answer. ``comment_seconds`` of silence, after which an event
    stream gets a comment; 0 for none.
    """
    shutdown = shutdown or Shutdown()
    roots = KeyFiles(engine_key) if engine_key else None
    metrics = GatewayMetrics()
    quarantine = Quarantine()

    def on_replica_hung(url: str, last_byte: float) -> None:
        metrics.hangs.inc()
        quarantine.on_replica_hung(url, last_byte, time.monotonic())
        dispatcher.report_hung(url, True)

    def on_replica_quiet(url: str) -> None:
        quarantine.forget_left(url)
        dispatcher.report_hung(url, False)

    liveness = Liveness(
        lambda url, seconds: proxy.answers_probe(url, seconds),
        lambda url: source.table.has_replica(url),
        on_hang=on_replica_hung,
        on_recovery=lambda url: dispatcher.report_hung(url, False),
        on_quiet=on_replica_quiet,
    )
    metrics.hung_gauge.set_function(lambda: len(liveness.hung))
    dispatcher = Dispatcher(Balancer(metrics.instance))
    source = TableSource(routes, lambda: on_table_change(), SentKeys(roots, GATEWAY_TO_OPERATOR), last_routes)
    metrics.table_age.set_function(lambda: source.age_seconds or 0.0)
    metrics.table_from_copy.set_function(lambda: source.origin is Origin.COPY)
    keys = SentKeys(roots, GATEWAY_TO_ENGINE)
    proxy = Proxy(dispatcher, metrics, keys, liveness, quarantine)
    follower = TextChainFollower(dispatcher.balancer.prefixes, keys, metrics)

    known_parties, turns = KnownParties(), StartTurns()

    def on_table_change() -> None:
        dispatcher.change_table(source.table)
        proxy.hand_streams_over()
        follower.follow_table(source.table)
        metrics.retain_only(source.table.models)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await proxy.open_session()
        await follower.open_session()
        following = supervise_task(source.follow_table, "follow-table")
        yield
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await follower.close()
        await proxy.close()

    app = FastAPI(
        title="Paternoster gateway", lifespan=lifespan, redirect_slashes=False, docs_url=None, redoc_url=None,
        openapi_url=None,
    )  # fmt: skip
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

    def count_refusal(model: str, route: str, fault: GatewayError | Refusal) -> tuple[GatewayError, Response]:
        # Frames of its traceback have it in variables: a cycle, in which the body would stay until a collection.
        fault.__traceback__ = fault.__context__ = None
        error = unavailable_error(str(fault), RETRY_AFTER_SECONDS) if isinstance(fault, Refusal) else fault
        metrics.failures[model] += 1
        metrics.requests.labels(metrics.label_of(model), route, str(error.status)).inc()
        return error, JSONResponse(error.to_body(), error.status, error.to_headers())

    async def forward(request: Request) -> Response:
        started, details = time.monotonic(), forwarded.get() or Forwarded()
        # The path as the router has it, so that its values are few.
        model, route = "", request.scope["route"].path
        try:
            if (party := known_parties.party_of(client_key(request.headers), source.table)) is not None:
                charge_request(request.scope, party)
            await turns.wait_turn(party_of(request.scope))
            call = await _read_call(request, source.table, streams=comment_seconds > 0)
            # The first of its names: a model has one series of each metric.
            details.model = model = source.table.first_names.get(call.model, "")
            # A client without a key is refused before anything else is done or counted for the model.
            peer = address_of(request.client.host) if request.client else ""
            admission = admit_request(source.table, call.model, call.key, time.time(), peer=peer, named=call.named)
            details.tenant = "" if admission.identity is None else admission.identity.tenant
            known_parties.add_party(admission)
            charge_request(request.scope, admission.party)
        except (GatewayError, Refusal) as fault:
            return count_refusal(model, route, fault)[1]

        def count_answer(answer: Answer) -> None:
            details.upstream_host, details.upstream_request_attempt_count = answer.replica, answer.attempts
            label = metrics.label_of(model)
            metrics.first_byte.labels(label, route).observe(time.monotonic() - started)
            metrics.requests.labels(label, route, str(answer.status)).inc()

        metrics.begin_request(model)
        return ForwardedAnswer(
            call, ClientWatch(request.receive), send_call=partial(proxy.send, call, admission),
            comment_seconds=comment_seconds if call.is_stream else 0, on_answer=count_answer,
            refuse=partial(count_refusal, model, route), on_end=partial(metrics.end_request, model, admission.fleet),
        )  # fmt: skip

    for path in FORWARDED:
        app.add_api_route(path, forward, methods=["POST"])

    @app.get(paths.MODELS)
    async def list_models(request: Request) -> dict[str, object]:
        table = source.table
        listed, left_out = share_models(table, models_open_to(table, client_key(request.headers), time.time()))
        names = [name for first in listed for name in (first, *table.models[first].aliases)]
        document: dict[str, object] = {"object": "list", "data": [_model_card(table, name) for name in names]}
        return document | {"left_out": left_out} if left_out else document

    @app.get(paths.MODEL)
    async def get_model(model: str, request: Request) -> Response:
        key = client_key(request.headers)
        try:
            admit_request(source.table, model, key, time.time())
        except GatewayError as error:
            return JSONResponse(error.to_body(), error.status, error.to_headers())
        return JSONResponse(_model_card(source.table, model))

    @app.get(paths.HEALTH)
    async def check_health() -> Response:
        return Response(status_code=200)

    @app.get(paths.READY)
    async def check_readiness() -> Response:
        age = source.age_seconds
        table = {"from": source.origin, "age_seconds": None if age is None else round(age, 1)}
        status = "ending" if shutdown.begun else "ready" if source.has_table else "no routing table"
        return JSONResponse({"status": status, "routing_table": table}, 200 if status == "ready" else 503)

    @app.get(paths.STATS)
    async def report_stats(request: Request) -> Response:
        table, query, only = source.table, request.query_params, None
        if (fleet := query.get(FLEET)) is not None:
            only = table.names_by_fleet.get(fleet, [])
        elif WAITING in query:
            only = dispatcher.list_waiting()
        numbers = metrics.build_stats(table.models, dispatcher.count_held, dispatcher.count_rejected, only)
        return Response(numbers.model_dump_json(), media_type="application/json")

    @app.get(paths.METRICS)
    async def export_metrics() -> Response:
        # As at each table: an answer that began while the model was in the table may have ended since.
        metrics.retain_only(source.table.models)
        metrics.set_gauges(dispatcher.count_held)
        return Response(await render_metrics(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return app


def share_models(table: RoutingTable, models: Sequence[str]) -> tuple[list[str], int]:
    """Those of ``models`` that one list has room for, shared out by namespace, and how many are left out.

    A namespace has first what was made first.
    """
    listed = list(models)
    for capacity, count_size in ((MOST_LISTED, lambda _: 1), (MOST_LISTED_BYTES, len)):
        sized = [
            Sized(name, row.namespace, sum(map(count_size, (name, *row.aliases))), row.created or STARTED)
            for name in listed
            for row in (table.models[name],)
        ]
        if sum(row.size for row in sized) > capacity:
            beyond = rows_beyond_share(sized, capacity)
            listed = [name for name in listed if name not in beyond]
    return listed, len(models) - len(listed)


def _model_card(table: RoutingTable, name: str) -> dict[str, object]:
    """The model with ``name`` as OpenAI lists it, with the first of its names as ``root``.

    With ``max_model_len`` (vLLM's name) and ``default_parameters`` (OpenRouter's) once its engines have reported them.
    """
    first = table.first_names[name]
    route = table.models[first]
    created = STARTED if route.created is None else route.created
    card: dict[str, object] = {"id": name, "object": "model", "created": created, "owned_by": "paternoster"}
    card |= {"root": first, "parent": None}
    if route.max_model_len is not None:
        card["max_model_len"] = route.max_model_len
    if route.default_parameters is not None:
        card["default_parameters"] = route.default_parameters.list_set_values()
    return card


async def _read_call(request: Request, table: RoutingTable, *, streams: bool) -> Call:
    """Read the whole request, since it may have to be sent twice. Raises :class:`GatewayError`.

    With a key that opens no model only a short body is read, for the model's name in the metrics. ``streams``: comments
    may stand in event streams, which are not compressed then.
    """
    key = client_key(request.headers)
    length = request.headers.get("content-length", "")
    short = length.isdecimal() and int(length) <= READ_WITHOUT_KEY
    if not short and not opens_any_model(table, key):
        raise unauthorized_error()
    try:
        body = await request.body()
    except ClientDisconnect:
        raise client_gone() from None
    headers = {name: value for name, value in request.headers.items() if name in FORWARDED_HEADERS}
    headers[REQUEST_ID] = current_request_id.get()
    headers[STREAM_ID] = StreamId(uuid.uuid4().hex, int(time.time())).encode()
    headers[PROGRESS] = "1"
    brackets = await refuse_costly(body)
    fields = read_fields(body)
    is_stream = fields.stream is True and request.scope["path"] in STREAMED
    if streams and is_stream:
        headers["accept-encoding"] = "identity"
    model = only_model(table, key, time.time()) if fields.model is None else fields.model
    return Call(
        request.scope["path"], model, body, headers, key, fields.model is not None, brackets, is_stream,
        DEBUG in request.headers, fields.priority or 0,
        None if fields.deadline_ms is None else fields.deadline_ms / 1000, open_request=open_request_of(request.scope),
    )  # fmt: skip


def install_error_handlers(app: FastAPI) -> None:
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
    """Middleware: serves ``/stats`` and ``/metrics`` on ``port`` alone, and nothing else but probes there.

    They cover every model and tenant, so clients must not read them.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The port that the connection came to, whatever its Host header says.
        if scope["type"] != "http" or scope["path"] in PROBES or self._on_port(scope) == (scope["path"] in NUMBERS):
            await self._app(scope, receive, send)
            return
        error = GatewayError(404, "NotFoundError", "There is nothing at this path of this port.")
        await JSONResponse(error.to_body(), error.status)(scope, receive, send)

    def _on_port(self, scope: Scope) -> bool:
        return bool(scope["server"][1] == self._port)
