"""Start requests in turn by fleet and tenant, a few in each iteration of the event loop.

asyncio resumes every task that is ready before it reads a socket or runs a timer again. So a thousand requests that
come at once would hold each other request, stream and probe for as long as all of them take together. Here they wait
for their tenant's turn instead, and what else is ready runs between them.
"""

import asyncio
from collections import OrderedDict, deque

from paternoster_http.shares import Party

STARTS = 8
"""Most requests that start in one iteration: each takes up to 1 ms until it waits for something."""


class StartTurns:
    """Work-conserving: a request that finds no other waiting starts at once."""

    def __init__(self, starts: int = STARTS) -> None:
        self._starts = starts
        self._started = 0
        """In the present iteration."""
        self._waiting: OrderedDict[Party, deque[asyncio.Future[None]]] = OrderedDict()
        """None of the queues is empty."""

    async def wait_turn(self, party: Party) -> None:
        """Wait until a request of ``party`` may start."""
        loop = asyncio.get_running_loop()
        if self._started == 0 and not self._waiting:
            loop.call_soon(self._begin_iteration)
        if self._started < self._starts and not self._waiting:
            self._started += 1
            return
        turn = loop.create_future()
        self._waiting.setdefault(party, deque()).append(turn)
        await turn

    def _begin_iteration(self) -> None:
        self._started = 0
        while self._waiting and self._started < self._starts:
            turn = self._next_turn()
            if not turn.done():  # cancelled: its client is gone
                turn.set_result(None)
                self._started += 1
        if self._started or self._waiting:
            asyncio.get_running_loop().call_soon(self._begin_iteration)

    def _next_turn(self) -> asyncio.Future[None]:
        party, turns = self._waiting.popitem(last=False)
        turn = turns.popleft()
        if turns:
            self._waiting[party] = turns
        return turn
