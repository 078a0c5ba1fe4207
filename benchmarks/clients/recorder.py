"""A server between an agent and the API that it calls: it passes everything on, and records the calls that count."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from clients.run import LIMIT

_OF_A_CONNECTION = frozenset({"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding"})


@dataclass(frozen=True)
class Call:
    """One call of the recorded path."""

    status: int
    usage: dict[str, Any]
    """Usage that the client gets; empty where there is none."""
    tools: int
    ignored: str
    forced: bool
    """Whether the request was changed so that the model had to call the tool."""
    request: bytes
    """Request that the agent sent."""
    error: str = ""
    """The start of the answer where its status is not 200."""


@contextmanager
def recorder(path: str, force: Callable[[dict[str, Any]], bool], url: str) -> Iterator[tuple[str, list[Call]]]:
    """The URL of a server that passes requests on to ``url``, and the calls of ``path``, which it appends as they end.

    ``force`` may change a call's body, and says whether the model has to call a tool then. Streams are passed on as
    they come. Anything else goes through as it is, query, headers and keys included.
    """
    calls: list[Call] = []
    place = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def _pass_on(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            recorded = self.command == "POST" and urlsplit(self.path).path == path
            body, forced = data, False
            if recorded:
                fields = json.loads(data)
                forced = force(fields)
                body = json.dumps(fields).encode()
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_A_CONNECTION}
            connection = HTTPConnection(place.hostname or "", place.port, timeout=LIMIT)
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            answer = self._answer(response)
            if recorded:
                ignored = response.headers.get("x-paternoster-ignored") or ""
                error = "" if response.status == 200 else answer[:1000].decode(errors="replace")
                usage = _usage(answer) if response.status == 200 else {}
                calls.append(Call(response.status, usage, len(fields.get("tools") or ()), ignored, forced, data, error))
            connection.close()

        def _answer(self, response: Any) -> bytes:
            """Write it to the agent piece by piece; the whole of it."""
            self.send_response(response.status)
            for name, value in response.headers.items():
                if name.lower() not in _OF_A_CONNECTION | {"date", "server"}:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            pieces = []
            while piece := response.read1(65_536):
                pieces.append(piece)
                self.wfile.write(piece)
                self.wfile.flush()
            return b"".join(pieces)

        do_GET = do_HEAD = do_POST = _pass_on  # noqa: N815 - names that the server calls

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _usage(answer: bytes) -> dict[str, Any]:
    """The last that a stream's events, or a plain answer, have."""
    found: dict[str, Any] = {}
    for line in answer.decode().splitlines():
        text = line.removeprefix("data: ")
        event = json.loads(text) if text.startswith("{") else {}
        usage = event.get("usage") or (event.get("response") or event.get("message") or {}).get("usage")
        found = usage or found
    return found
