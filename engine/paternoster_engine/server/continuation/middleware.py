"""Middleware that reads which stream a call is of."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.stream_journal import RESUME, STREAM_ID, Resume, StreamId
from paternoster_engine.server.access.identity import TenantRules
from paternoster_engine.server.continuation.stream_call import StreamCall, current_call


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
