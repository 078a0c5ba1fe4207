"""aiohttp connections to servers that may be hostile: answers are bounded in pieces as well as in bytes.

What is read of an answer ahead is bounded by :data:`READ_BUFFER` and :data:`SOCKET_BUFFER`.

An answer in chunks of one byte, or an interim answer (1xx) after another, costs a call of Python for every few bytes:
256 KiB that are read at once would hold the event loop for half a second.
"""

import socket
from functools import partial
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import set_exception

FREE_LINES = 1024
"""Lines of an answer, however short. A chunk has two, an event of a stream of tokens two to three more."""
BYTES_PER_LINE = 16
"""Bytes for each line of an answer beyond :data:`FREE_LINES`; events of Messages, which have most lines, have 24."""
MAX_INTERIM_ANSWERS = 8
"""Before the answer itself: 100 Continue, 103 Early Hints."""
MAX_HEAD_BYTES = 2**14
"""Limit for status and headers, interim answers included. They stay in memory for as long as the answer lasts."""
LINES_AT_ONCE = 256
"""In what was read at once; where there are more, or no answer has begun, it is parsed in slices."""
SLICE = 8192
READ_BUFFER = 2**15
"""Bytes of ``read_bufsize``: aiohttp stops parsing at a sixteenth as many chunks, until those are taken."""
SOCKET_BUFFER = 2**15
"""Bytes that the kernel receives ahead for a connection, about what is read at once; without it, it takes megabytes."""


class BoundedResponseHandler(ResponseHandler):
    """Ends a connection whose answer has too many lines for its bytes, or too many interim answers before it.

    Who waits for the answer gets a :class:`aiohttp.ClientPayloadError`.
    """

    def __init__(self, loop: Any) -> None:
        super().__init__(loop)
        self._body: Any = None
        """The body of the answer that has begun."""
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._bytes = self._lines = self._interim_answers = 0
        self._begun = self._ended = False

    def set_response_params(self, **params: Any) -> None:
        self._begin_answer()
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Queue a message that was parsed."""
        code = data[0].code
        self._begun = not 100 <= code < 200
        if not self._begun:
            self._interim_answers += 1
            if self._interim_answers > MAX_INTERIM_ANSWERS:
                self._end_response(f"more than {MAX_INTERIM_ANSWERS} interim answers came before the answer")
                return
        self._body = data[1]
        super().feed_data(data, size)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the body of an answer that was not whole: aiohttp leaves it open after some errors of framing."""
        super().connection_lost(exc)
        body, self._body = self._body, None
        if body is not None and not body.is_eof() and body.exception() is None:
            set_exception(body, aiohttp.ClientPayloadError("the connection ended before the answer was whole"))

    def data_received(self, data: bytes) -> None:
        if not data:
            super().data_received(data)  # the parser goes on with what it keeps
        elif self._begun and (lines := data.count(b"\n")) <= LINES_AT_ONCE:
            self._receive(data, lines)
        else:
            for start in range(0, len(data), SLICE):
                if self._reading_paused:
                    rest = data[start:]  # the parser keeps it for later
                    self._receive(rest, rest.count(b"\n"))
                    return
                piece = data[start : start + SLICE]
                self._receive(piece, piece.count(b"\n"))

    def _receive(self, data: bytes, lines: int) -> None:
        if self._ended:
            return
        self._bytes += len(data)
        self._lines += lines
        if self._lines > FREE_LINES + self._bytes // BYTES_PER_LINE:
            self._end_response(f"the answer came in too small pieces: {self._lines} lines for {self._bytes} bytes")
        else:
            super().data_received(data)
            if not self._begun and self._bytes > MAX_HEAD_BYTES:
                self._end_response(f"the head of the answer has more than {MAX_HEAD_BYTES} bytes")

    def _end_response(self, reason: str) -> None:
        self._ended = True
        error = aiohttp.ClientPayloadError(reason)
        self.set_exception(error)
        if self._payload is not None:
            set_exception(self._payload, error)
        if self.transport is not None:
            self.transport.abort()


def bounded_connector(**settings: Any) -> aiohttp.TCPConnector:
    """A connector whose connections are :class:`BoundedResponseHandler`; ``settings`` are those of aiohttp's."""
    connector = aiohttp.TCPConnector(socket_factory=_open_socket, **settings)
    # aiohttp has no public way to give it another protocol.
    connector._factory = cast("partial[ResponseHandler]", partial(BoundedResponseHandler, loop=connector._loop))
    return connector


def _open_socket(address: Any) -> socket.socket:
    """A socket for what ``getaddrinfo`` found."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)
    return opened
