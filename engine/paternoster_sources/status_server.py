"""How far a download is, over HTTP: what is in a container that runs leaves it in no other way without rights."""

import asyncio
import threading

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.http.paths import STATS
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.listeners import open_listener
from paternoster_http.request_line import CanonicalRequestLine
from paternoster_http.server import BackgroundServer

LIMITS = HttpLimits(max_header_bytes=8192, max_body_bytes=1024, max_held_body_bytes=64 * 1024, max_connections=64)
"""One operator asks, every few seconds."""


class StatusServer:
    """Answers GET :data:`STATS` with the status published last, in a thread that ends with the process."""

    def __init__(self, port: int) -> None:
        """Raises ``OSError`` where the address is in use."""
        self._status = FetchStatus(state="listing")
        listener = open_listener("", port)
        self.port: int = listener.getsockname()[1]
        server = BackgroundServer(CanonicalRequestLine(self._answer_request), LIMITS)
        threading.Thread(target=lambda: asyncio.run(server.serve([listener])), name="status", daemon=True).start()

    def publish(self, status: FetchStatus) -> None:
        self._status = status

    async def _answer_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != STATS:
            response: Response = PlainTextResponse("Not Found", 404)
        elif scope["method"] != "GET":
            response = PlainTextResponse("Method Not Allowed", 405, {"Allow": "GET"})
        else:
            body = self._status.to_json_line().encode(errors="replace")
            response = Response(body, media_type="application/json")
        await response(scope, receive, send)
