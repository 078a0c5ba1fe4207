"""Statistics and metrics on a port of their own: they cover every model and tenant, so clients must not read them."""

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.http.routes import NUMBERS, PROBES
from paternoster_gateway.errors import GatewayError


class StatsPort:
    """Middleware: serves ``/stats`` and ``/metrics`` on ``port`` alone, and nothing else but probes there."""

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
