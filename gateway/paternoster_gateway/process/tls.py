"""HTTPS of the gateway's own: a certificate that is read again once it is renewed, and what stays on the plain port.

Whoever renews a certificate (cert-manager, for one) replaces the files of a mounted Secret. A handshake that begins
after they were read again uses the new one; connections that stand are left alone.
"""

import asyncio
import logging
import ssl
from pathlib import Path

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from paternoster_contract.http.routes import NUMBERS, PROBES
from paternoster_gateway.errors import GatewayError

log = logging.getLogger(__name__)

REREAD_SECONDS = 5.0
INSIDE = PROBES | NUMBERS
"""What the plain port still answers: for the kubelet, the operator and Prometheus."""


class Certificate:
    """A chain and its key in PEM files, as they are now; OSError or ``ssl.SSLError`` where they are none at first."""

    def __init__(self, chain: Path, key: Path) -> None:
        self._files = (chain, key)
        self._text = self._read()
        self._current = self._load()
        self.context = self._load()
        """For a listening socket, for as long as it listens."""
        # OpenSSL asks at each handshake, with or without a server's name in it.
        self.context.sni_callback = self._choose

    async def follow(self) -> None:
        """Read again every :data:`REREAD_SECONDS`, until cancelled."""
        fault = ""
        while True:
            await asyncio.sleep(REREAD_SECONDS)
            try:
                if await asyncio.to_thread(self.refresh):
                    log.info("the certificate %s was renewed", self._files[0])
                said = ""
            # Half of a renewal, or none: the last pair goes on serving.
            except OSError as error:
                said = str(error)
            if said and said != fault:
                log.warning("the certificate %s: %s; going on with the last one", self._files[0], said)
            fault = said

    def refresh(self) -> bool:
        """Whether there was a new pair, which later handshakes use. OSError or ``ssl.SSLError`` changes nothing."""
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
    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current


class PlainHttpForProbesOnly:
    """Middleware: without TLS it answers only the paths of :data:`INSIDE`, so that no prompt is sent in the clear."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["scheme"] == "https" or scope["path"] in INSIDE:
            await self._app(scope, receive, send)
            return
        error = GatewayError(403, "PermissionDeniedError", "this port is for probes and statistics: use https")
        await JSONResponse(error.body(), error.status)(scope, receive, send)
