"""The HTTP applications, made of their routes; they hold no state but :class:`ServerState`."""

from collections.abc import Mapping, Sequence

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from paternoster_contract import __version__
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.http.routes import Kind, guarded_prefixes
from paternoster_engine.server import error_responses, routes_admin, routes_gateway, routes_health
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.access.shares_of_tenants import SharesOfTenants
from paternoster_engine.server.answer_headers import AnswerHeaders
from paternoster_engine.server.bodies.reading_shares import ReadingShares
from paternoster_engine.server.continuation.progress import AnswersInProgress
from paternoster_engine.server.embeddings import routes as routes_embeddings
from paternoster_engine.server.messages import routes as routes_messages
from paternoster_engine.server.middleware import BearerKeys, IgnoredFields, InFlight, StreamCalls
from paternoster_engine.server.openai import routes as routes_openai
from paternoster_engine.server.openai import tokenize_routes as routes_tokenize
from paternoster_engine.server.responses import routes as routes_responses
from paternoster_engine.server.state import ServerState
from paternoster_http.cors import allow_origins
from paternoster_http.errors.request_id import RequestId
from paternoster_http.errors.unforeseen import UnforeseenErrors
from paternoster_http.request_line import CanonicalRequestLine
from paternoster_http.vendor_rewriting import VendorErrors


def include_routes(*routers: APIRouter) -> Sequence[BaseRoute]:
    """Routes of ``routers`` and of health, which FastAPI builds at the first request, once for all applications."""
    included = APIRouter()
    for router in routers:
        included.include_router(router, responses=error_responses.RESPONSES)
    included.include_router(routes_health.router)
    return included.routes


API = include_routes(
    routes_openai.router, routes_responses.router, routes_messages.router,
    routes_tokenize.router, routes_embeddings.router, routes_gateway.router,
)  # fmt: skip
ADMIN = include_routes(routes_admin.router)
DOCUMENTATION = ("/docs", "/redoc", "/openapi.json")
"""Paths at which FastAPI describes the routes of an application."""


def create_app(
    state: ServerState,
    keys: KeyFiles | None = None,
    tenants: TenantRules | None = None,
    origins: Sequence[str] = (),
) -> FastAPI:
    """What clients use; ``keys`` are theirs, None for an API that is open. ``origins``: web pages that may call it.

    Answers from the first moment on: while the model loads, with 503 to all that needs it.
    """
    # Metrics describe other clients, too: the admin port serves them to monitoring.
    guarded = (
        *guarded_prefixes(Kind.API),
        *guarded_prefixes(Kind.NUMBERS),
        *guarded_prefixes(Kind.GATEWAY),
        *DOCUMENTATION,
    )
    opens = {} if keys is None else dict.fromkeys(guarded, keys)
    app = _build_app("Paternoster engine", state, opens, API, origins, tenants or TenantRules())
    app.state.has_keys = keys is not None
    return app


def create_admin_app(state: ServerState, keys: KeyFiles | None = None) -> FastAPI:
    """What the operator uses, in the same way."""
    opens = {} if keys is None else dict.fromkeys((*guarded_prefixes(Kind.ADMIN), *DOCUMENTATION), keys)
    return _build_app("Paternoster engine, admin", state, opens, ADMIN)


def _build_app(
    title: str,
    state: ServerState,
    keys: Mapping[str, KeyFiles],
    routes: Sequence[BaseRoute],
    origins: Sequence[str] = (),
    tenants: TenantRules | None = None,
) -> FastAPI:
    """``tenants``: None where there are none."""
    app = FastAPI(title=title, version=__version__, redirect_slashes=False)
    app.state.server = state
    app.state.reading_shares = ReadingShares()
    app.state.tenants, app.state.has_keys = TenantRules(), False
    error_responses.install_handlers(app)
    app.router.routes.extend(routes)
    # The middleware added last is the outermost.
    app.add_middleware(UnforeseenErrors)
    if tenants is not None:
        app.state.tenants = tenants
        app.add_middleware(SharesOfTenants, rules=tenants)
        app.add_middleware(StreamCalls, rules=tenants)
    app.add_middleware(BearerKeys, keys=keys)
    app.add_middleware(InFlight, state=state)
    app.add_middleware(VendorErrors)
    app.add_middleware(IgnoredFields)
    app.add_middleware(AnswerHeaders)
    allow_origins(app, origins)
    app.add_middleware(RequestId)
    if tenants is not None:
        app.add_middleware(AnswersInProgress, encode_progress=state.encode_progress, rules=tenants)
    app.add_middleware(CanonicalRequestLine)
    return app
