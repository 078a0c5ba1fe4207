"""How far a download is, over HTTP: what is in a container that runs leaves it in no other way without rights."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from paternoster_contract.fetch_status import FetchStatus
from paternoster_contract.http.paths import STATS

PATIENCE = 2.0
"""Seconds that a client may take for its next bytes. One is answered at a time; a slow one delays reports alone."""


class StatusServer:
    """Answers GET :data:`STATS` with the status published last, in a thread that ends with the process."""

    def __init__(self, port: int) -> None:
        """Raises ``OSError`` where the address is in use."""
        self._status = FetchStatus(state="listing")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = PATIENCE

            def do_GET(self) -> None:
                if self.path != STATS:
                    self.send_error(404)
                    return
                body = outer._status.to_json_line().encode(errors="replace")
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        class Server(HTTPServer):
            def handle_error(self, *args: object) -> None:
                pass

        self._server = Server(("", port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="status", daemon=True).start()

    def publish(self, status: FetchStatus) -> None:
        self._status = status

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
