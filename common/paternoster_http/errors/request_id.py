"""Give each request an id, which its answer and the logs of gateway and engine contain."""

import re
import uuid
from collections.abc import Iterable
from contextvars import ContextVar

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_contract.http.headers import REQUEST_ID
from paternoster_http.errors.anthropic_paths import is_anthropic

ANTHROPIC_REQUEST_ID = "request-id"
"""Header in which clients of Anthropic's API expect the id."""
_VALID = re.compile(rb"[!-~]{1,128}")
_NAME = REQUEST_ID.lower().encode()

current_request_id: ContextVar[str] = ContextVar("current_request_id", default="")
"""Id of the current request; empty outside of a request."""


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the client's ``X-Request-Id`` if it has 1 to 128 visible ASCII characters, else a new id."""
    given = next((value for name, value in headers if name.lower() == _NAME), b"")
    return given.decode() if _VALID.fullmatch(given) else uuid.uuid4().hex


class RequestId:
    """ASGI middleware: sets :data:`current_request_id` and the id's header, on Anthropic's paths also Anthropic's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_of(scope["headers"])
        current_request_id.set(request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                if is_anthropic(scope["path"]):
                    headers[ANTHROPIC_REQUEST_ID] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
