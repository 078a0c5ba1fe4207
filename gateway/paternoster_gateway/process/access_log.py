"""An access log: a line of JSON for each answer, with the names that Envoy's own JSON format has for the same things.

No key, no body, no query and no header but those below is in it. Every field that a client sends is bounded, and JSON
in ASCII leaves no way to begin a line or to send control characters to a terminal.
https://gateway.envoyproxy.io/docs/tasks/observability/proxy-accesslog/
"""

import json
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TextIO

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paternoster_contract.http.routes import NUMBERS, PROBES
from paternoster_http.errors.request_id import current_request_id

LONGEST = 256
"""Most characters of a path or of a user agent; longer ones are cut."""
NOT_LOGGED = PROBES | NUMBERS
"""Paths that a kubelet and Prometheus request every few seconds."""
NO_ANSWER = 0
"""``response_code`` of a request whose connection was closed before an answer began, as in Envoy."""


@dataclass(slots=True)
class Forwarded:
    """Fields of a line that the gateway sets once it has read the request."""

    model: str = ""
    """The served model; empty where the request names none."""
    tenant: str = ""
    """The tenant of the client's key; empty where the fleet needs no key."""
    upstream_host: str = ""
    """URL of the replica that answered."""
    upstream_request_attempt_count: int = 0
    error_event_code: int | None = None
    """Status of the error with which a stream ended as an event; ``response_code`` was sent before it."""


forwarded: ContextVar[Forwarded | None] = ContextVar("forwarded", default=None)
"""The fields of the request that is being answered; None where no log is written."""


def write_line(line: str, stream: TextIO | None = None) -> None:
    """Write ``line`` to ``stream``, stdout by default, and flush it."""
    stream = stream or sys.stdout
    stream.write(f"{line}\n")
    stream.flush()


class AccessLog:
    """ASGI middleware: writes a line when an answer has ended, however it did."""

    def __init__(self, app: ASGIApp, write: Callable[[str], object] = write_line) -> None:
        self._app = app
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in NOT_LOGGED:
            await self._app(scope, receive, send)
            return
        began, clock = datetime.now(UTC), time.monotonic()
        status, sent, received = NO_ANSWER, 0, 0
        first_byte: float | None = None
        whole = False
        details = Forwarded()
        forwarded.set(details)

        async def receive_counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def send_counting(message: Message) -> None:
            nonlocal status, sent, first_byte, whole
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
                first_byte = time.monotonic() - clock
            else:
                sent += len(message.get("body", b""))
                whole = not message.get("more_body", False)

        try:
            await self._app(scope, receive_counting, send_counting)
        finally:
            headers, client = Headers(scope=scope), scope.get("client")
            self._write(
                json.dumps(
                    {
                        "start_time": began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                        "method": scope["method"],
                        "path": scope["path"][:LONGEST],
                        "protocol": f"HTTP/{scope['http_version']}",
                        "response_code": status,
                        "complete": whole,
                        "bytes_received": received,
                        "bytes_sent": sent,
                        "duration": _to_milliseconds(time.monotonic() - clock),
                        "response_duration": _to_milliseconds(first_byte),
                        "user_agent": headers.get("user-agent", "")[:LONGEST],
                        "request_id": current_request_id.get(),
                        "downstream_remote_address": f"{client[0]}:{client[1]}" if client else "",
                        **asdict(details),
                    }
                )
            )


def _to_milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(1000 * seconds)
