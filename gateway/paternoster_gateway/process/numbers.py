"""Statistics and metrics on a port of their own: they tell of every model and client, so clients do not get them."""

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.http.routes import NUMBERS, PROBES
from paternoster_gateway.errors import GatewayError


class NumbersApart:
    """Middleware: ``/stats`` and ``/metrics`` are on ``port`` alone, and nothing but them and probes is there."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The port that the connection came to, whatever its Host header says.
        if scope["type"] != "http" or scope["path"] in PROBES or self._apart(scope) == (scope["path"] in NUMBERS):
            await self._app(scope, receive, send)
            return
        error = GatewayError(404, "NotFoundError", "There is nothing at this path of this port.")
        await JSONResponse(error.body(), error.status)(scope, receive, send)

    def _apart(self, scope: Scope) -> bool:
        return bool(scope["server"][1] == self._port)
