"""Share the event loop's time between tenants while bodies are read."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

SHARE = 0.25
"""Share of the event loop's time for the bodies of one tenant."""
BURST_SECONDS = 0.1
"""Event loop's time that a tenant may use at once; one body of the largest size may use more."""
LEAST_SECONDS = 1e-4
"""Shortest time that a body waits for."""
REFUSAL_SECONDS = 4e-3
"""Event loop's time for a call refused for want of room or quota: its head, body, prompt and answer.

Measured beside steps of the model, with which the loop shares the interpreter: 2.3 to 4 ms of its thread on a Xeon.
"""
MAX_TENANTS = 4096
"""Tenants whose time is counted; above, those with the least are dropped."""


@dataclass(slots=True)
class _Tenant:
    used_seconds: float = 0.0
    """Seconds of the event loop, less the share since."""
    since: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class ReadingShares:
    """Delays a tenant's next body while the ones before took more than the tenant's share; in order of arrival."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._tenants: dict[str, _Tenant] = {}

    async def wait_turn(self, tenant: str) -> Callable[[], None]:
        """Wait until a body of ``tenant`` may be read; the caller must call the result when it has been."""
        entry = self._get_entry(tenant)
        await entry.turn.acquire()
        try:
            while (above := self._decay_used_seconds(entry) - BURST_SECONDS) > LEAST_SECONDS:
                await self._sleep(above / SHARE)
        except BaseException:
            entry.turn.release()
            raise
        return entry.turn.release

    async def pace_refusal(self, tenant: str) -> None:
        """Wait until a call of ``tenant`` may be refused: clients that repeat such calls get a share, too."""
        end = await self.wait_turn(tenant)
        self.charge_tenant(tenant, REFUSAL_SECONDS)
        end()

    def charge_tenant(self, tenant: str, seconds: float) -> None:
        """Add ``seconds`` of the event loop's time to what bodies of ``tenant`` took."""
        entry = self._get_entry(tenant)
        entry.used_seconds = self._decay_used_seconds(entry) + seconds

    def _decay_used_seconds(self, entry: _Tenant) -> float:
        now = self._clock()
        entry.used_seconds = max(0.0, entry.used_seconds - (now - entry.since) * SHARE)
        entry.since = now
        return entry.used_seconds

    def _get_entry(self, tenant: str) -> _Tenant:
        entry = self._tenants.get(tenant)
        if entry is None:
            if len(self._tenants) >= MAX_TENANTS:
                self._forget_idle_tenants()
            entry = self._tenants[tenant] = _Tenant(since=self._clock())
        return entry

    def _forget_idle_tenants(self) -> None:
        idle = [name for name, entry in self._tenants.items() if not entry.turn.locked()]
        idle.sort(key=lambda name: self._decay_used_seconds(self._tenants[name]))
        for name in idle[: max(1, len(idle) // 2)]:
            del self._tenants[name]


_charge: ContextVar[Callable[[float], None] | None] = ContextVar("_charge", default=None)


def charge_reading_to(charge: Callable[[float], None] | None) -> None:
    """From now on :func:`charge_reading` in this call is charged by ``charge``."""
    _charge.set(charge)


@contextmanager
def charge_reading() -> Iterator[None]:
    """Charge the processor time of the block, which must not wait, to the tenant of the call in progress."""
    charge = _charge.get()
    if charge is None:
        yield
        return
    started = time.thread_time()
    # A block within is a part of this one.
    _charge.set(None)
    try:
        yield
    finally:
        _charge.set(charge)
        charge(time.thread_time() - started)
