"""An HTTP server of files: ranges, entity tags, breaks half way, and a record of the requests."""

import contextlib
import hashlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class ReceivedRequest:
    path: str
    start: int
    """Start of the requested range, 0 without one."""
    sent: int
    """Bytes of the body that were written."""
    authorization: str | None


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    chunked: bool = False
    """Without saying how long it is."""


class FileServer:
    """``answer(path, headers)`` says what is where; what it gives is cut by ranges and breaks."""

    def __init__(
        self,
        answer: Callable[[str, dict[str, str]], Answer],
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.answer = answer
        self.received: list[ReceivedRequest] = []
        self.breaks: dict[str, list[int]] = {}
        """Path -> after how many bytes of the body each of its next answers breaks off."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._serve(self)

            def do_HEAD(self) -> None:
                outer._serve(self)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.scheme = "http" if tls is None else "https"
        self.host = host
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator["FileServer"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def of(self, path: str) -> list[ReceivedRequest]:
        return [request for request in self.received if request.path == path]

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        answer = self.answer(handler.path, headers)
        body, status, start = answer.body, answer.status, 0
        sent_headers = dict(answer.headers)
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        if status == 200 and found and answer.ranges:
            start = int(found[1])
            end = min(int(found[2]) + 1 if found[2] else len(body), len(body))
            if start >= len(body):
                status, body = 416, b""
            else:
                status = 206
                sent_headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
                body = body[start:end]
        breaks = self.breaks.get(handler.path.partition("?")[0], [])
        sent = body[: breaks.pop(0)] if breaks and status in (200, 206) else body
        self.received.append(
            ReceivedRequest(
                handler.path.partition("?")[0], int(found[1]) if found else 0, len(sent), headers.get("authorization")
            )
        )
        handler.send_response(status)
        if not answer.chunked:
            handler.send_header("Content-Length", str(len(body)))
        for name, value in sent_headers.items():
            handler.send_header(name, value)
        if answer.chunked or len(sent) < len(body):
            handler.send_header("Connection", "close")
            handler.close_connection = True
        handler.end_headers()
        if handler.command != "HEAD":
            with contextlib.suppress(OSError):
                handler.wfile.write(sent)


def entity_tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'
