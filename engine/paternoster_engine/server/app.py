"""The HTTP applications, made of their routes; they hold no state but :class:`ServerState`."""

from collections.abc import Mapping

from fastapi import APIRouter, FastAPI

from paternoster_contract import __version__, paths
from paternoster_contract.key_files import KeyFiles
from paternoster_engine.server import errors, routes_admin, routes_health
from paternoster_engine.server.auth import BearerKeys
from paternoster_engine.server.embeddings import routes as routes_embeddings
from paternoster_engine.server.identity import TenantRules
from paternoster_engine.server.middleware import InFlight, RequestId
from paternoster_engine.server.openai import routes as routes_openai
from paternoster_engine.server.openai import tokenize_routes as routes_tokenize
from paternoster_engine.server.state import ServerState


def create_app(state: ServerState, keys: KeyFiles | None = None, tenants: TenantRules | None = None) -> FastAPI:
    """What clients use; ``keys`` are theirs, None for an API that is open.

    Answers from the first moment on: while the model loads, with 503 to all that needs it.
    """
    # Numbers tell of other clients, too: the admin port has them for whoever measures.
    guarded = ("/v1", "/rerank", "/tokenize", "/detokenize", paths.STATS, paths.METRICS)
    opens = {} if keys is None else dict.fromkeys(guarded, keys)
    routers = routes_openai.router, routes_tokenize.router, routes_embeddings.router
    app = _app("Paternoster engine", state, opens, *routers)
    app.state.tenants = tenants or TenantRules()
    return app


def create_admin_app(state: ServerState, keys: KeyFiles | None = None) -> FastAPI:
    """What the operator uses, in the same way."""
    return _app("Paternoster engine, admin", state, {} if keys is None else {"/admin": keys}, routes_admin.router)


def _app(title: str, state: ServerState, keys: Mapping[str, KeyFiles], *routers: APIRouter) -> FastAPI:
    """``routers`` and what is open to everyone."""
    app = FastAPI(title=title, version=__version__)
    app.state.server = state
    errors.install(app)
    for router in routers:
        app.include_router(router, responses=errors.RESPONSES)
    app.include_router(routes_health.router)
    # The middleware added last is the outermost.
    app.add_middleware(BearerKeys, keys=keys)
    app.add_middleware(InFlight, state=state)
    app.add_middleware(RequestId)
    return app
