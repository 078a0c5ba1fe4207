"""Calls whose replica has sent no byte yet; those of draining replicas are moved to others, as streams are.

A stream is moved by its journal, which the gateway has. Of an answer without a byte only the replica has the tokens:
the gateway requests them once another replica has a place, and the replica answers the call with them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from paternoster_contract.http import paths
from paternoster_contract.routing import Replica
from paternoster_contract.stream_journal import JOURNAL, STREAM_ID
from paternoster_contract.supervise import supervise_task
from paternoster_gateway.admission.admission import Admission
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.proxy.call import Call
from paternoster_gateway.proxy.dispatcher import Dispatcher
from paternoster_gateway.proxy.journaled_stream import JournaledStream, KeptJournal
from paternoster_gateway.proxy.relay import HAND_OVER_SECONDS
from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_http.open_requests import OpenRequest

CallReplica = Callable[[str, str, str | None, Mapping[str, str]], Awaitable[tuple[int, str | None] | None]]
"""Method, URL, fleet whose key is sent, and headers; status and :data:`JOURNAL` of the answer."""


@dataclass(slots=True, eq=False)
class Waiting:
    """One call at a replica."""

    request: RoutedRequest
    url: str
    """Of the replica."""
    call: Call
    admission: Admission
    target: Replica | None = None
    """The replica with a place for the call, once it may be handed over."""


class UnansweredCalls:
    """All calls that wait for the first byte of a replica."""

    def __init__(self, dispatcher: Dispatcher, call_replica: CallReplica) -> None:
        self._dispatcher = dispatcher
        self._call_replica = call_replica
        self._at: dict[str, set[Waiting]] = {}
        """By URL of the replica."""
        self._moving: asyncio.Task[None] | None = None

    @contextmanager
    def await_first_byte(self, request: RoutedRequest, url: str, call: Call, admission: Admission) -> Iterator[Waiting]:
        """A block that waits for the first byte of ``url``; after it, the target is taken or released."""
        waiting = Waiting(request, url, call, admission)
        calls = self._at.setdefault(url, set())
        calls.add(waiting)
        try:
            yield waiting
        finally:
            calls.discard(waiting)
            if not calls:
                self._at.pop(url, None)

    def take_target(self, waiting: Waiting) -> Replica | None:
        """The replica with a place for a call that was handed over; None where the replica did so by itself."""
        target, waiting.target = waiting.target, None
        if target is not None:
            self._dispatcher.balancer.on_hand_over(waiting.request, target.url)
        return target

    def release_target(self, waiting: Waiting, *, again: bool = True) -> None:
        """The call stays where it is; ``again``: the target may be chosen for it later."""
        target, waiting.target = waiting.target, None
        if target is not None:
            self._dispatcher.balancer.cancel_hand_over(waiting.request, target.url, again=again)
            self._dispatcher.end_attempt(waiting.request, target.url)

    def on_table_change(self) -> None:
        """Begin to move calls, where a replica drains."""
        if self._moving is None and self._to_move():
            self._moving = supervise_task(self._move_requests, "hand-over-calls")
            self._moving.add_done_callback(lambda _: setattr(self, "_moving", None))

    async def close(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)

    def _to_move(self) -> list[Waiting]:
        draining = self._dispatcher.balancer.handing_over
        return [waiting for url in draining for waiting in self._at.get(url, ())]

    async def _move_requests(self) -> None:
        """Until no call waits for a draining replica."""
        while waiting := self._to_move():
            placed = [(each, target) for each in waiting if each.target is None and (target := self._find_target(each))]
            urls = {target.url for _, target in placed}
            numerics = dict(zip(urls, await asyncio.gather(*map(self._read_numerics, urls)), strict=True))
            await asyncio.gather(*(self._hand_over(each, target, numerics[target.url]) for each, target in placed))
            await asyncio.sleep(HAND_OVER_SECONDS)

    def _find_target(self, waiting: Waiting) -> Replica | None:
        try:
            decision = self._dispatcher.route_hand_over(waiting.request, waiting.admission)
        except GatewayError:
            return None  # the client may begin nothing any more; the call was admitted
        waiting.target = None if decision is None else decision.replica
        return waiting.target

    async def _read_numerics(self, url: str) -> str | None:
        answer = await self._call_replica("GET", url + paths.HEALTH, None, {})
        return None if answer is None else answer[1]

    async def _hand_over(self, waiting: Waiting, target: Replica, numerics: str | None) -> None:
        """Request the call from the replica, which it does not hand over to one that computes other numbers."""
        status = 412
        if numerics is not None and JournaledStream.can_begin(numerics):
            headers = {JOURNAL: numerics, STREAM_ID: waiting.call.headers[STREAM_ID]}
            answer = await self._call_replica("POST", waiting.url + paths.HAND_OVER, waiting.admission.fleet, headers)
            status = 404 if answer is None else answer[0]
        if status != 204 and waiting.target is target:
            self.release_target(waiting, again=status != 412)


async def read_journal(await_piece: Callable[[], Awaitable[bytes]], request: OpenRequest) -> bytes:
    """The body of the answer to a call that is handed over; empty where it is too long, or there is no room for it."""
    journal = KeptJournal(request)
    while journal.is_whole and (piece := await await_piece()):
        journal.add_lines(piece)
    journal.add_lines(b"\n")  # the last line has no end
    lines = journal.read_lines()
    journal.drop_lines()
    return lines
