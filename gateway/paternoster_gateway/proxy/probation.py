"""Calls that several replicas stopped with, sent one after another: the one that is the cause is then alone."""

import asyncio

from paternoster_gateway.proxy.liveness import PROBE_SECONDS, PROBES, QUIET_SECONDS

PROBATION_SECONDS = QUIET_SECONDS + PROBES * PROBE_SECONDS
"""For which such a call has its replica without another one: by then the replica is hung, or has answered."""


class Probation:
    """One turn at a time for each fleet."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    async def acquire_lock(self, fleet: str) -> asyncio.Lock:
        lock = self._locks.setdefault(fleet, asyncio.Lock())
        await lock.acquire()
        return lock

    def release_lock(self, fleet: str, lock: asyncio.Lock) -> None:
        lock.release()
        self._locks = {key: each for key, each in self._locks.items() if each.locked()}


class Turn:
    """That of one call, of which each of several attempts may need one."""

    def __init__(self, probation: Probation, fleet: str) -> None:
        self._probation = probation
        self._fleet = fleet
        self._lock: asyncio.Lock | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def begin_turn(self) -> None:
        """Once no other call of the fleet has its turn."""
        self._lock = await self._probation.acquire_lock(self._fleet)

    def start_timer(self) -> None:
        """The call is sent now."""
        if self._lock is not None:
            self._timer = asyncio.get_running_loop().call_later(PROBATION_SECONDS, self.end_turn)

    def end_turn(self) -> None:
        """More than once has no effect."""
        if self._timer is not None:
            self._timer.cancel()
        if self._lock is not None:
            self._probation.release_lock(self._fleet, self._lock)
        self._lock = self._timer = None
