"""ASGI middleware around every call: its key, its stream, the count of calls, and which fields are ignored."""

from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import client_key, matches_digest
from paternoster_contract.http.routes import Kind, guarded_prefixes
from paternoster_contract.stream_journal import RESUME, STREAM_ID, Resume, StreamId
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.continuation.stream_call import StreamCall, current_call
from paternoster_engine.server.openai.fields.body import collect_ignored
from paternoster_engine.server.state import ServerState
from paternoster_http.errors.openai_errors import error_body

IGNORED = "X-Paternoster-Ignored"


CALLS = tuple(f"{prefix}/" for prefix in guarded_prefixes(Kind.API))
"""How paths of calls begin, with a slash at their end."""


class InFlight:
    """Counts calls of the API until their last byte is sent, so that a drain can end."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not f"{scope['path']}/".startswith(CALLS):
            await self._app(scope, receive, send)
            return
        self._state.call_begins()
        try:
            await self._app(scope, receive, send)
        finally:
            self._state.call_ended()


class IgnoredFields:
    """Names the fields of a body that were accepted and have no effect, in a header of the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Calls of one connection may share a context.
        with collect_ignored() as names:

            async def send_with_names(message: Message) -> None:
                if message["type"] == "http.response.start" and names:
                    MutableHeaders(scope=message)[IGNORED] = ", ".join(sorted(names))
                await send(message)

            await self._app(scope, receive, send_with_names)


class BearerKeys:
    """Answers 401 before a guarded path's body is even read."""

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


class StreamCalls:
    """Makes :data:`current_call` of the headers, which only a gateway can have sent."""

    def __init__(self, app: ASGIApp, rules: TenantRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._rules.believes_header:
            await self._app(scope, receive, send)
            return
        token = current_call.set(_call_of(Headers(scope=scope)))
        try:
            await self._app(scope, receive, send)
        finally:
            current_call.reset(token)


def _call_of(headers: Headers) -> StreamCall | None:
    """None for a call that has no id, or one that no gateway sends: it is answered as any other."""
    try:
        stream_id = StreamId.decode(headers.get(STREAM_ID, ""))
        resume = headers.get(RESUME)
        return StreamCall(stream_id, None if resume is None else Resume.decode(resume))
    except ValueError:
        return None
