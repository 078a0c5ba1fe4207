"""Keys of clients: which of them open which paths."""

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import client_key, matches_digest
from paternoster_http.errors.openai_errors import error_body


class BearerKeys:
    """ASGI middleware that answers 401 before a guarded path's body is even read."""

    def __init__(self, app: ASGIApp, keys: Mapping[str, KeyFiles]) -> None:
        """``keys``: path prefix -> its keys, any of which opens it; without any key no client may enter."""
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._may_access(scope):
            message = "Missing or wrong key in the Authorization or X-Api-Key header"
            body = error_body(401, "AuthenticationError", message)
            await JSONResponse(body, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _may_access(self, scope: Scope) -> bool:
        # A prefix ends where a path segment ends.
        path = scope["path"] + "/"
        keys = next((keys for prefix, keys in self._keys.items() if path.startswith(f"{prefix}/")), None)
        return keys is None or matches_digest(client_key(Headers(scope=scope)), keys.digests)
