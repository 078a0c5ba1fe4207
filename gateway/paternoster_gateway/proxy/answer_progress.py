"""The journal that an engine sends before a whole answer: what another one needs to go on when this one dies."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from multidict import CIMultiDict

from paternoster_contract.stream_journal import (
    JOURNAL,
    MAX_JOURNAL_BYTES,
    PROGRESS_MEDIA_TYPE,
    RESUME,
    AnswerHead,
    Resume,
)
from paternoster_gateway.proxy.call import Call, HandedOver
from paternoster_gateway.proxy.headers import media_type_of
from paternoster_gateway.proxy.journaled_stream import JournaledStream


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

    content: aiohttp.StreamReader

    def close(self) -> None: ...


class AnswerBehindJournal:
    """What followed the journal: status and headers of the answer, and its body as it comes."""

    def __init__(self, response: EngineResponse, head: AnswerHead) -> None:
        self.status = head.status
        self.raw_headers = tuple(head.headers)
        self.headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        self.content = response.content
        self.close = response.close


class AnswerProgress:
    """What is computed of one call's answer, by the replica that has the call now and by those before it."""

    def __init__(self, call: Call) -> None:
        """``call``: as the replica gets it, with the journal of those before."""
        self._numerics = ""
        self._lines: list[bytes] = []
        self._num_bytes = 0
        if RESUME in call.headers and (size := Resume.decode(call.headers[RESUME]).num_bytes):
            self._add_line(call.body[-size:])

    def comes_in(self, response: EngineResponse) -> bool:
        """Whether the answer stands behind its journal."""
        return media_type_of(response.headers) == PROGRESS_MEDIA_TYPE and JournaledStream.can_begin(
            response.headers.get(JOURNAL)
        )

    async def read_answer(
        self, response: EngineResponse, expect_bytes: Callable[[], AbstractContextManager[Any]]
    ) -> AnswerBehindJournal:
        """Read the journal, until the head of the answer comes.

        Raises :class:`aiohttp.ClientError` where the replica breaks off or sends what no engine does.
        """
        self._numerics = response.headers[JOURNAL]
        while True:
            with expect_bytes():
                try:
                    line = await response.content.readline()
                except (ValueError, LineTooLong) as error:
                    raise aiohttp.ClientPayloadError(f"a line of the journal is too long: {error}") from error
            if not line.endswith(b"\n"):
                raise aiohttp.ClientPayloadError("the replica ended its answer within the journal")
            if not line.startswith(b"{"):
                self._add_line(line[:-1])
                continue
            try:
                return AnswerBehindJournal(response, AnswerHead.decode(line))
            except ValueError as error:
                raise aiohttp.ClientPayloadError(str(error)) from error

    def build_hand_over(self) -> HandedOver | None:
        """What another replica can go on with; None where the answer begins anew."""
        if not self._numerics or self._num_bytes > MAX_JOURNAL_BYTES:
            return None
        return HandedOver(self._numerics, b"\n".join(self._lines), broken=True)

    def _add_line(self, line: bytes) -> None:
        self._num_bytes += len(line) + 1
        if self._num_bytes > MAX_JOURNAL_BYTES:
            self._lines.clear()
        else:
            self._lines.append(line)
