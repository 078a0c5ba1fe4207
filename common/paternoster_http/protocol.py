"""uvicorn's HTTP/1.1 connection, bounded: in bytes before they are kept, in time, and in requests sent ahead."""

from asyncio import AbstractEventLoop, Transport
from collections.abc import Sized
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from paternoster_contract.http import paths, routes
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_http.connections import Place, unmap_address
from paternoster_http.errors.refusal import Refusal
from paternoster_http.open_requests import EXTENSION, OpenRequest, OpenRequests, State
from paternoster_http.request_head import check_head, check_version, refuse_body_length, render_head_without_upgrade
from paternoster_http.request_line import canonical_path

PIECE = 64 * 1024
"""Bytes of a body or an answer whose time is bounded."""
MAX_PIPELINED = 8
"""Requests that a client may send ahead of an answer."""
FREE_PIECES = 1024
"""Chunks and segments of a body, however small: each costs a call of Python, whatever its length."""
BYTES_PER_PIECE = 64
"""Bytes of a body for each piece beyond :data:`FREE_PIECES`."""
LINGER_SECONDS = 2.0
"""After a refusal, for a client that still sends: closing at once would take the answer from it (RFC 9112, 9.6)."""
PROBES = frozenset(
    path.encode() for path in routes.PROBES | routes.NUMBERS | {paths.OPERATOR_HEALTH, paths.OPERATOR_READY}
)
"""Answered at once, also where all other places are taken."""


class _AnswerUntilClose(RequestResponseCycle):
    """Answers HTTP/1.0, which has no chunks and no interim answers: without Content-Length the connection's end counts.

    See RFC 9112, 6.1 and 6.3, and RFC 9110, 15.2.
    """

    _until_close = False

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            self._until_close = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if self._until_close:
                self.chunked_encoding = False
        elif message["type"] == "http.response.body" and self._until_close:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class _Flow(FlowControl):
    """Reads nothing more while requests wait behind another one."""

    def __init__(self, transport: Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection. :meth:`check_progress` must be called about once a second: the times are bounded there."""

    # With more than 30 attributes in its dictionary an instance has one of its own, of three times the size.
    __slots__ = (
        "_blocked", "_body_bytes", "_body_parts", "_body_pieces", "_buffered", "_header_bytes", "_in_body",
        "_limits", "_open", "_parsed", "_piece_bytes", "_place", "_reading", "_refused_at", "_replayed_head",
        "_requests", "_unsent", "_untaken", "_waiting_since",
    )  # fmt: skip

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: HttpLimits,
        requests: OpenRequests,
        place: Place,
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        """``requests``: those of the whole port."""
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._requests = requests
        self._place = place
        self._open: list[OpenRequest] = []
        """Requests of this connection whose answer is not whole, the one that is answered first."""
        self._reading: OpenRequest | None = None
        """The one whose headers came last."""
        self._untaken: list[OpenRequest] = []
        """Requests whose answer is whole, and not taken by the client."""
        self._parsed = False
        """Whether the parser has given out something, so that it buffers no more than the last bytes it was fed."""
        self._buffered = 0
        """Bytes fed since then."""
        self._header_bytes = 0
        self._in_body = False
        self._body_bytes = 0
        self._body_pieces = 0
        self._body_parts: list[bytes] = []
        """What was parsed of a body since bytes were last fed: given on as one piece."""
        self._piece_bytes = 0
        self._waiting_since: float | None = None
        """For what the client has to send next; None between requests."""
        self._blocked = False
        self._unsent: tuple[float, int] | None = None
        """Since when, and how many bytes, the client does not take."""
        self._refused_at: float | None = None
        self._replayed_head = b""
        """Head of a request, replayed without its upgrade: the parser takes what follows for another protocol."""

    # The connection

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self.client = unmap_address(self.client[0]), self.client[1]
        self.flow = _Flow(transport, self.pipeline)
        self._place.close = transport.abort
        self._waiting_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_requests()
        self._place.close_place()
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._blocked = True
        if not self._counts_unread(blocked=False):
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._blocked = False
        self._unsent = None
        while self._untaken:
            self._untaken.pop().release_all()
        if self._open:
            self._open[0].hold_unread(0)
            if not self._in_body:
                self._place.begin_working()

    def data_received(self, data: bytes) -> None:
        if self._refused_at is not None:
            return
        self._unset_keepalive_if_required()
        if self._waiting_since is None and not self._in_body:
            self._waiting_since = self.loop.time()
        try:
            room = self._limits.max_header_bytes - self._buffered
            if len(data) <= room:
                self._parse_data(data)
            else:
                self._parse_data(data[:room])
                if not self._parsed and not self.transport.is_closing():
                    raise self._too_many_header_bytes()
                self._parse_data(data[room:])
        except Refusal as refusal:
            self._refuse_request(refusal)

    def _parse_data(self, data: bytes) -> None:
        self._parsed = False
        try:
            self._feed_parser(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Refusal):
                raise error.__context__ from None
            raise Refusal(400, "Invalid HTTP request received.") from None
        self._buffered = 0 if self._parsed else self._buffered + len(data)
        self._pass_body_on()

    def _feed_parser(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # No other protocol is spoken here, and a server may ignore the offer (RFC 9110, 7.8).
                data = self._replayed_head + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _pass_body_on(self) -> None:
        """Append to the body once for all pieces that were fed together: each time it is copied whole."""
        if self._body_parts:
            body = b"".join(self._body_parts)
            self._body_parts.clear()
            super().on_body(body)

    def _refuse_request(self, refusal: Refusal) -> None:
        """Answer, unless that would stand in another answer's place; read no more requests and let the client go."""
        cycle = self.cycle
        open_cycle = cycle is not None and not cycle.response_complete
        # In its body the request has been given to the application, before that it has not.
        answerable = not self.pipeline and (
            open_cycle and not cycle.response_started if self._in_body else not open_cycle
        )
        if answerable:
            self._write_refusal(refusal)
        else:
            self.transport.abort()

    def _give_up(self, request: OpenRequest, refusal: Refusal) -> None:
        """A request of this connection gives way to another one: it is refused if its answer has not begun."""
        if self._open == [request] and not request.has_begun() and self._refused_at is None and not self._blocked:
            if request.end_in_event is not None:
                request.end_in_event(refusal)
            else:
                self._write_refusal(refusal)
        else:
            self.transport.abort()

    def _write_refusal(self, refusal: Refusal) -> None:
        self._refused_at = self.loop.time()
        self._waiting_since = None
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._end_requests()
        self._place.begin_waiting()
        self._unset_keepalive_if_required()
        self.transport.write(refusal.render_response(self._read_path(), self.headers))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()

    def _end_requests(self) -> None:
        for request in (*self._open, *self._untaken):
            request.release_all()
        self._open.clear()
        self._untaken.clear()

    def _read_path(self) -> str:
        """Path of the request that is being read, as far as it has arrived."""
        return canonical_path(unquote(self.url.partition(b"?")[0].decode("latin-1")))

    # The parser's callbacks

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise Refusal(400, f"More than {MAX_PIPELINED} requests sent ahead of an answer.")
        super().on_message_begin()
        self._header_bytes = 0
        self._parsed = True

    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > self._limits.max_url_bytes:
            raise Refusal(414, f"The URL is longer than {self._limits.max_url_bytes} bytes.")
        super().on_url(url)
        self._count_header_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= self._limits.max_headers:
            raise Refusal(431, f"The request has more than {self._limits.max_headers} headers.")
        self._count_header_bytes(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        check_version(version)
        if self.parser.should_upgrade():
            self._replayed_head = render_head_without_upgrade(self.parser.get_method(), self.url, version, self.headers)
            return
        path = self.url.partition(b"?")[0]
        if check_head(version, path, self.headers, self._limits.max_body_bytes):
            # What the parser adds later are trailers: none is a header (RFC 9110, 6.5.1).
            self.scope["headers"] = self.headers.copy()
        request = self._requests.add_request(self._place.address, self._give_up)
        if path not in PROBES:
            request.take_place()
        self.scope["extensions"] = {EXTENSION: request}  # type: ignore[dict-item]
        super().on_headers_complete()
        if version == "1.0":
            self.cycle.__class__ = _AnswerUntilClose
            self.cycle.waiting_for_100_continue = False
        request.cycle = self.cycle
        self._open.append(request)
        self._reading = request
        self._in_body = True
        self._body_bytes = self._body_pieces = self._piece_bytes = 0
        self._waiting_since = self.loop.time()
        self._parsed = True

    def on_body(self, body: bytes) -> None:
        self._parsed = True
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.max_body_bytes:
            raise refuse_body_length(self._limits.max_body_bytes)
        self._body_pieces += 1
        if self._body_pieces > FREE_PIECES + self._body_bytes // BYTES_PER_PIECE:
            raise Refusal(400, f"The body came in too small pieces: {self._body_pieces} for {self._body_bytes} bytes; "
                               f"beyond {FREE_PIECES}, one for each {BYTES_PER_PIECE} bytes is allowed.")  # fmt: skip
        assert self._reading is not None
        self._reading.hold_body(len(body))
        self._piece_bytes += len(body)
        if self._piece_bytes >= PIECE:
            self._piece_bytes = 0
            self._waiting_since = self.loop.time()
            self._reading.set_state(State.UPLOADING)
        self._body_parts.append(body)

    def on_message_complete(self) -> None:
        self._parsed = True
        if self.parser.should_upgrade():
            return  # its head comes again, and its body
        self._pass_body_on()
        super().on_message_complete()
        self._in_body = False
        self._waiting_since = None
        assert self._reading is not None
        self._reading.set_state(State.UNANSWERED)
        if not self.cycle.response_complete:
            self._place.begin_working()

    def on_response_complete(self) -> None:
        request = self._open.pop(0)
        if self._blocked:
            self._untaken.append(request)
        else:
            request.release_all()
        super().on_response_complete()
        # The last one that waited has begun.
        self.flow.resume_reading()
        if not self.pipeline and not self._in_body:
            self._place.begin_waiting()

    def _count_header_bytes(self, count: int) -> None:
        self._header_bytes += count
        if self._header_bytes > self._limits.max_header_bytes:
            raise self._too_many_header_bytes()

    def _too_many_header_bytes(self) -> Refusal:
        return Refusal(431, f"The headers are longer than {self._limits.max_header_bytes} bytes.")

    # Time

    def check_progress(self, now: float) -> None:
        """End the connection if its client is too slow; ``now`` in seconds of the loop's clock."""
        if self._untaken_for(now) > self._limits.write_timeout or (self._blocked and not self._is_blocked()):
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._refused_at is not None:
            if now - self._refused_at > LINGER_SECONDS:
                self.transport.abort()
        elif self._waiting_since is None:
            return
        elif self.flow.read_paused:
            self._waiting_since = now
        elif now - self._waiting_since > (self._limits.body_timeout if self._in_body else self._limits.header_timeout):
            self._time_out()

    def _is_blocked(self) -> bool:
        """Whether what the client has not read for a while may be kept."""
        self._place.begin_waiting()
        return self._counts_unread(blocked=True)

    def _counts_unread(self, *, blocked: bool) -> bool:
        """Whether what the client does not read may be kept."""
        unread = next(iter((*self._untaken, *self._open)), None)
        if unread is not None:
            with suppress(Refusal):
                unread.hold_unread(self.transport.get_write_buffer_size(), blocked=blocked)
                return True
        return unread is None

    def _untaken_for(self, now: float) -> float:
        if not (self._blocked or self.transport.is_closing()):
            return 0.0
        # While it is blocked, or closing, no task writes: a smaller buffer means that the client has read.
        size = self.transport.get_write_buffer_size()
        if self._unsent is None or size <= self._unsent[1] - PIECE:
            self._unsent = now, size
        return now - self._unsent[0]

    def _time_out(self) -> None:
        if self._in_body:
            self._refuse_request(Refusal(408, f"The body came too slowly: less than {PIECE} bytes "
                                      f"in {self._limits.body_timeout:g} s."))  # fmt: skip
        elif self._buffered or self._header_bytes:
            self._refuse_request(Refusal(408, f"The headers were not whole within {self._limits.header_timeout:g} s."))
        else:
            self.transport.close()
