"""Calls that several replicas stopped with, sent one after another: the one that is the cause is then alone."""

import asyncio
from collections import Counter

from paternoster_gateway.proxy.liveness import PROBE_SECONDS, PROBES, QUIET_SECONDS

PROBATION_SECONDS = QUIET_SECONDS + PROBES * PROBE_SECONDS
"""For which such a call has its replica without another one: by then the replica is hung, or has answered."""


class Probation:
    """One turn at a time for each fleet."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users = Counter[str]()
        """Calls of a fleet that have its lock or wait for it."""

    @property
    def fleets(self) -> list[str]:
        """Those of which a call has its turn or waits for it."""
        return list(self._locks)

    async def acquire_lock(self, fleet: str) -> None:
        lock = self._locks.setdefault(fleet, asyncio.Lock())
        self._users[fleet] += 1
        try:
            await lock.acquire()
        except BaseException:
            self._remove_user(fleet)
            raise

    def release_lock(self, fleet: str) -> None:
        self._locks[fleet].release()
        self._remove_user(fleet)

    def _remove_user(self, fleet: str) -> None:
        self._users[fleet] -= 1
        if not self._users[fleet]:
            del self._users[fleet], self._locks[fleet]


class Turn:
    """That of one call, of which each of several attempts may need one."""

    def __init__(self, probation: Probation, fleet: str) -> None:
        self._probation = probation
        self._fleet = fleet
        self._has_lock = False
        self._timer: asyncio.TimerHandle | None = None

    async def begin_turn(self) -> None:
        """Once no other call of the fleet has its turn."""
        await self._probation.acquire_lock(self._fleet)
        self._has_lock = True

    def start_timer(self) -> None:
        """The call is sent now."""
        if self._has_lock:
            self._timer = asyncio.get_running_loop().call_later(PROBATION_SECONDS, self.end_turn)

    def end_turn(self) -> None:
        """More than once has no effect."""
        if self._timer is not None:
            self._timer.cancel()
        if self._has_lock:
            self._probation.release_lock(self._fleet)
        self._has_lock, self._timer = False, None
