"""The HTTP application, made of its routes; it holds no state but :class:`ServerState`."""

from fastapi import FastAPI

from paternoster_contract import __version__
from paternoster_engine.server import errors, routes_admin, routes_health, routes_openai, routes_tokenize
from paternoster_engine.server.auth import BearerKeys
from paternoster_engine.server.middleware import InFlight, RequestId
from paternoster_engine.server.state import ServerState


def create_app(state: ServerState) -> FastAPI:
    """Answers from the first moment on: while the model loads, with 503 to all that needs it."""
    app = FastAPI(title="Paternoster engine", version=__version__)
    app.state.server = state
    errors.install(app)
    for routes in (routes_openai, routes_tokenize, routes_health, routes_admin):
        app.include_router(routes.router)
    keys = {"/v1": state.api_key, "/tokenize": state.api_key, "/detokenize": state.api_key, "/admin": state.admin_key}
    # The middleware added last is the outermost.
    app.add_middleware(BearerKeys, keys=keys)
    app.add_middleware(InFlight, state=state)
    app.add_middleware(RequestId)
    return app
