"""The journal that an engine sends before a whole answer: what another one needs to go on when this one dies."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from multidict import CIMultiDict

from paternoster_contract.http.headers import NOT_SERVING
from paternoster_contract.stream_journal import JOURNAL, MAX_JOURNAL_BYTES, PROGRESS_MEDIA_TYPE, AnswerHead
from paternoster_gateway.call.attempt import HandedOver
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.journaled_stream import JournaledStream, KeptJournal
from paternoster_gateway.proxy.headers import media_type_of
from paternoster_gateway.routing.decisions import Result
from paternoster_http.errors.refusal import Refusal

MAX_PROGRESS_BYTES = 16 * MAX_JOURNAL_BYTES
"""Limit for a journal before a whole answer: engines end theirs at one, earlier releases with the answer."""
MAX_HEAD_BYTES = 2**16
"""Limit for the line with status and headers of the answer."""
REFUSALS = frozenset({502, 503, 504})
"""Statuses after which one other replica gets the request; 429 concerns the client, which gets it."""
COUNTED_HEAD = 2048
"""Bytes of an answer's status and headers from which on they are counted, :data:`HEAD_COPIES` times."""
HEAD_COPIES = 4
"""Copies of the head that aiohttp and the answer to the client keep."""
_HEAD = b"\n{"
"""The end of a line, and how the head begins: no line of a journal does so."""


class EngineResponse(Protocol):
    """An engine's answer, as far as the gateway reads it.

    Not aiohttp's ``content_type``: what that parses stays in the response for as long as a stream is open.
    """

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Any: ...

    @property
    def raw_headers(self) -> Any: ...

    @property
    def content(self) -> "AnswerBody": ...

    def close(self) -> None: ...


class AnswerBody(Protocol):
    """The body of an answer, as it comes."""

    async def readany(self) -> bytes:
        """The next piece; empty at the end."""


class _Rest:
    """A body whose first piece was read with what came before it."""

    def __init__(self, first: bytes, content: AnswerBody) -> None:
        self._first = first
        self._content = content

    async def readany(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        return await self._content.readany()


class AnswerBehindJournal:
    """What followed the journal: status and headers of the answer, and its body as it comes."""

    def __init__(self, response: EngineResponse, head: AnswerHead, first: bytes) -> None:
        """``first``: of the body."""
        self.status = head.status
        self.raw_headers = tuple(head.headers)
        self.headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        self.content: AnswerBody = _Rest(first, response.content)
        self.close = response.close


@dataclass(slots=True, eq=False)
class AnswerProgress:
    """What is computed of one call's answer, by the replica that has the call now and by those before it."""

    call: Call
    """The call's body as the replica gets it, with the journal of the replicas before."""
    _numerics: str = ""
    _journal: KeptJournal | None = None

    def comes_in(self, response: EngineResponse) -> bool:
        """Whether the answer stands behind its journal."""
        return media_type_of(response.headers) == PROGRESS_MEDIA_TYPE and JournaledStream.can_begin(
            response.headers.get(JOURNAL)
        )

    async def read_answer(
        self, response: EngineResponse, await_piece: Callable[[EngineResponse], Awaitable[bytes]]
    ) -> AnswerBehindJournal:
        """Read the journal, until the head of the answer comes.

        Raises :class:`aiohttp.ClientError` where the replica breaks off or sends what no engine does.
        """
        self._numerics = response.headers[JOURNAL]
        journal = self._journal = KeptJournal(self.call.open_request, self.call.journal)
        num_bytes, end = 0, b"\n"
        while True:
            piece = await _read_piece(response, await_piece)
            num_bytes += len(piece)
            if num_bytes > MAX_PROGRESS_BYTES:
                raise aiohttp.ClientPayloadError(f"the journal has more than {MAX_PROGRESS_BYTES} bytes")
            if (start := (end + piece).find(_HEAD)) >= 0:
                break
            journal.add_lines(piece)
            end = piece[-1:]
        journal.add_lines(piece[:start])
        head = piece[start:]
        while b"\n" not in head:
            if len(head) > MAX_HEAD_BYTES:
                raise aiohttp.ClientPayloadError(f"the head of the answer has more than {MAX_HEAD_BYTES} bytes")
            head += await _read_piece(response, await_piece)
        line, _, first = head.partition(b"\n")
        try:
            return AnswerBehindJournal(response, AnswerHead.decode(line), first)
        except ValueError as error:
            raise aiohttp.ClientPayloadError(str(error)) from error

    def build_hand_over(self) -> HandedOver | None:
        """What another replica can go on with; None where the answer begins anew."""
        if self._journal is None or not self._journal.is_whole:
            return None
        return HandedOver(self._numerics, self._journal.read_lines(), broken=True)

    def drop_journal(self) -> None:
        """Keep nothing any more."""
        if self._journal is not None:
            self._journal.drop_lines()


async def _read_piece(response: EngineResponse, await_piece: Callable[[EngineResponse], Awaitable[bytes]]) -> bytes:
    piece = await await_piece(response)
    if not piece:
        raise aiohttp.ClientPayloadError("the replica ended its answer within the journal")
    return piece


def count_head(response: EngineResponse, call: Call) -> None:
    """Count a long head for ``call``; raises :class:`aiohttp.ClientError` where there is no room for it."""
    size = sum(len(name) + len(value) for name, value in response.raw_headers)
    try:
        call.open_request.hold_answer("head", HEAD_COPIES * size if size > COUNTED_HEAD else 0)
    except Refusal as refusal:
        raise aiohttp.ClientPayloadError(f"a head of {size} bytes: {refusal}") from None


def result_of(status: int, headers: Mapping[str, str]) -> Result:
    """The result of an engine's answer, for the balancer."""
    if status not in REFUSALS or headers.get("x-should-retry") == "false":
        return Result.ANSWERED
    if status == 503:
        return Result.NOT_SERVING if NOT_SERVING in headers else Result.FULL
    return Result.REFUSED
