"""Middleware around every call: counts calls of the API, and reports which fields of their bodies are ignored."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_contract.http.routes import Kind, guarded_prefixes
from paternoster_engine.server.openai.fields.body import collect_ignored
from paternoster_engine.server.state import ServerState

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
