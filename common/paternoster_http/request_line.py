"""Normalise request lines before routing: ``HEAD`` becomes ``GET``, superfluous slashes are removed."""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SLASHES = re.compile("/{2,}")


def canonical_path(path: str) -> str:
    """Remove the trailing slash and empty segments of ``path``, as in ``/v1//models/``."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"


class CanonicalRequestLine:
    """ASGI middleware, the outermost one: normalises the path, and answers ``HEAD`` as ``GET`` without the body.

    A redirect to the normalised path would contain the scheme that this server sees, which behind a TLS proxy is not
    the client's. For ``HEAD`` see RFC 9110, 9.3.2.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        inner = {**scope, "path": canonical_path(scope["path"])}
        if scope["method"] != "HEAD":
            await self._app(inner, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**inner, "method": "GET"}, receive, send_without_body)
