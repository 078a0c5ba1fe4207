"""Bearer keys: one for the API, one for the admin routes."""

import hmac
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_engine.server.errors import error_body


class BearerKeys:
    """ASGI middleware that answers 401 before a guarded path's body is even read."""

    def __init__(self, app: ASGIApp, keys: dict[str, str | None]) -> None:
        """``keys``: path prefix -> key; None leaves it open. Health, metrics and statistics are not guarded."""
        self._app = app
        self._digests = {prefix: sha256(key.encode()).digest() for prefix, key in keys.items() if key}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._allowed(scope):
            body = error_body("Missing or wrong key in the Authorization header", "AuthenticationError", 401)
            await JSONResponse(body, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        # A prefix ends where a path segment ends.
        path = scope["path"] + "/"
        digest = next((digest for prefix, digest in self._digests.items() if path.startswith(f"{prefix}/")), None)
        if digest is None:
            return True
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        # Digests are of one length, so that the comparison takes the same time whatever was sent.
        return scheme.lower() == "bearer" and hmac.compare_digest(sha256(key.strip().encode()).digest(), digest)
