"""The gateway's own HTTPS: a certificate that is read again once it is renewed, and what stays on the plain port.

A certificate is renewed by replacing the files of a mounted Secret, as cert-manager does. A handshake that begins after
they were read again uses the new certificate; open connections go on with theirs.
"""

import asyncio
import logging
import ssl
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.http import paths
from paternoster_contract.http.routes import NUMBERS, PROBES
from paternoster_gateway.errors import GatewayError

log = logging.getLogger(__name__)

REREAD_SECONDS = 5.0


class Certificate:
    """A certificate chain and its key in PEM files, read again when they change.

    Raises OSError or ``ssl.SSLError`` where the files hold no pair at first.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._files = (chain, key)
        self._text = self._read()
        self._current = self._load()
        self.context = self._load()
        """For a listening socket, for as long as it listens."""
        # OpenSSL calls it at each handshake, with or without a server's name in it.
        self.context.sni_callback = self._use_current_pair

    async def follow_files(self) -> None:
        """Read again every :data:`REREAD_SECONDS`, until cancelled."""
        logged_fault = ""
        while True:
            await asyncio.sleep(REREAD_SECONDS)
            try:
                if await asyncio.to_thread(self.refresh):
                    log.info("the certificate %s was renewed", self._files[0])
                fault = ""
            # While the files hold half of a renewal, or no pair, the last pair goes on serving.
            except OSError as error:
                fault = str(error)
            if fault and fault != logged_fault:
                log.warning("the certificate %s: %s; going on with the last one", self._files[0], fault)
            logged_fault = fault

    def refresh(self) -> bool:
        """Read the pair again: whether it is a new one, which later handshakes use.

        Raises OSError or ``ssl.SSLError``, and then nothing has changed.
        """
        text = self._read()
        if text == self._text:
            return False
        self._current = self._load()
        self._text = text
        return True

    def _read(self) -> tuple[bytes, ...]:
        return tuple(file.read_bytes() for file in self._files)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._files)
        return context

    # A context that fails to take a pair has half of it: so each pair has a context of its own.
    def _use_current_pair(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current


def is_for_monitoring(path: str) -> bool:
    """Whether the path has statistics or records of calls, for the operator, Prometheus and ``explain --request``."""
    return path in NUMBERS or path == paths.DEBUG_REQUESTS or path.startswith(f"{paths.DEBUG_REQUESTS}/")


class PlainHttpForProbesOnly:
    """Middleware: without TLS it answers only probes and monitoring, so that no prompt is sent in the clear."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["scheme"] == "https"
            or scope["path"] in PROBES
            or is_for_monitoring(scope["path"])
        ):
            await self._app(scope, receive, send)
            return
        error = GatewayError(403, "PermissionDeniedError", "this port is for probes and statistics: use https")
        await JSONResponse(error.to_body(), error.status)(scope, receive, send)
