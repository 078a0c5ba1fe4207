"""Answers to unhandled errors, made inside all other middleware: they have its headers and its form."""

import logging

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_http.errors.openai_errors import error_body

log = logging.getLogger(__name__)


class UnforeseenErrors:
    """ASGI middleware, the innermost: it logs what routes raise and no handler handles, and answers with 500.

    Where the answer has begun, the error goes on, and the server breaks the connection off.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except Exception:
            if begun or scope["type"] != "http":
                raise
            log.exception("%s %r failed", scope["method"], scope["path"])
            response = JSONResponse(error_body(500, "InternalServerError", "Internal server error"), 500)
            await response(scope, receive, send)
