"""Has draining replicas hand over the calls of which they have sent no byte, once other replicas have a place."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from paternoster_contract.http import paths
from paternoster_contract.routing import Replica
from paternoster_contract.stream_journal import JOURNAL, STREAM_ID
from paternoster_contract.supervise import supervise_task
from paternoster_gateway.call.journaled_stream import JournaledStream, KeptJournal
from paternoster_gateway.call.registry import SessionRegistry, UnansweredCall
from paternoster_gateway.routing.limits import HAND_OVER_SECONDS
from paternoster_http.open_requests import OpenRequest

CallReplica = Callable[[str, str, str | None, Mapping[str, str]], Awaitable[tuple[int, str | None] | None]]
"""Method, URL, fleet whose key is sent, and headers; status and :data:`JOURNAL` of the answer."""


class CallHandOver:
    """Moves the calls of one gateway, in a task of its own while there are any."""

    def __init__(self, registry: SessionRegistry, call_replica: CallReplica) -> None:
        self._registry = registry
        self._call_replica = call_replica
        self._moving: asyncio.Task[None] | None = None

    def on_table_change(self) -> None:
        """Begin to move calls, where a replica drains."""
        if self._moving is None and self._registry.list_movable():
            self._moving = supervise_task(self._move_calls, "hand-over-calls")
            self._moving.add_done_callback(lambda _: setattr(self, "_moving", None))

    async def close(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)

    async def _move_calls(self) -> None:
        """Until no call waits for a draining replica."""
        while calls := self._registry.list_movable():
            placed = [
                (call, target)
                for call in calls
                if call.target is None and (target := self._registry.find_target(call)) is not None
            ]
            urls = {target.url for _, target in placed}
            numerics = dict(zip(urls, await asyncio.gather(*map(self._read_numerics, urls)), strict=True))
            await asyncio.gather(*(self._hand_over(call, target, numerics[target.url]) for call, target in placed))
            await asyncio.sleep(HAND_OVER_SECONDS)

    async def _read_numerics(self, url: str) -> str | None:
        answer = await self._call_replica("GET", url + paths.HEALTH, None, {})
        return None if answer is None else answer[1]

    async def _hand_over(self, call: UnansweredCall, target: Replica, numerics: str | None) -> None:
        """Request the call from the replica, which it does not hand over to one that computes other numbers."""
        status = 412
        if numerics is not None and JournaledStream.can_begin(numerics):
            headers = {JOURNAL: numerics, STREAM_ID: call.call.headers[STREAM_ID]}
            answer = await self._call_replica("POST", call.url + paths.HAND_OVER, call.admission.fleet, headers)
            status = 404 if answer is None else answer[0]
        if status != 204 and call.target is target:
            self._registry.release_target(call, again=status != 412)


async def read_journal(await_piece: Callable[[], Awaitable[bytes]], request: OpenRequest) -> bytes:
    """The body of the answer to a call that is handed over; empty where it is too long, or there is no room for it."""
    journal = KeptJournal(request)
    while journal.is_whole and (piece := await await_piece()):
        journal.add_lines(piece)
    journal.add_lines(b"\n")  # the last line has no end
    lines = journal.read_lines()
    journal.drop_lines()
    return lines
