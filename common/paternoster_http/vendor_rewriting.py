"""Middleware that puts errors in the form of the API that a path belongs to."""

import json
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_http.errors.refusal import Refusal
from paternoster_http.errors.vendor_errors import has_vendor_form, vendor_body
from paternoster_http.open_requests import open_request_of

MAX_BODY = 64 * 2**10
"""Bytes of a body that may be an error; a longer one is passed on as it is."""


class VendorErrors:
    """ASGI middleware: OpenAI's error bodies become the path's. Statuses and headers stay, and so do other bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_vendor_form(scope["path"]):
            await self._app(scope, receive, send)
            return
        rewriting = _Rewriting(scope, send)
        await self._app(scope, receive, rewriting)
        await rewriting.send_rest()


class _Rewriting:
    """Holds an error back until its body is whole."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _may_be_error(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            more = message.get("more_body", False)
            if not more or len(self._body) > MAX_BODY or not self._has_room():
                await self._flush(more)

    async def send_rest(self) -> None:
        """Send what is held back of an error that broke off: its connection then ends before it is whole."""
        if self._start is not None:
            await self._flush(more=True)

    def _has_room(self) -> bool:
        """Whether what is held back may be kept."""
        try:
            open_request_of(self._scope).hold_answer("error", len(self._body))
        except Refusal:
            return False
        return True

    async def _flush(self, more: bool) -> None:
        start, body, self._start = self._start, self._body, None
        assert start is not None
        document = None if more else _read_error(body)
        if document is not None:
            body = json.dumps(vendor_body(self._scope["path"], start["status"], document)).encode()
            MutableHeaders(scope=start)["content-length"] = str(len(body))
        self._body = b""
        open_request_of(self._scope).hold_answer("error", 0)
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def _may_be_error(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    plain = "content-encoding" not in headers
    return start["status"] >= 400 and plain and headers.get("content-type", "").startswith("application/json")


def _read_error(body: bytes) -> dict[str, Any] | None:
    """An error in OpenAI's form; None for anything else."""
    try:
        document: dict[str, Any] = json.loads(body)
        written = document.get("type") == "error" or not isinstance(document["error"]["message"], str)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return None if written else document
