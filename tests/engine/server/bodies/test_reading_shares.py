"""The event loop's time is shared between tenants while bodies are read."""

import asyncio
from collections.abc import Callable

import pytest

from paternoster_engine.server.bodies import reading_shares
from paternoster_engine.server.bodies.reading_shares import (
    BURST_SECONDS,
    MAX_TENANTS,
    REFUSAL_SECONDS,
    SHARE,
    ReadingShares,
    charge_reading,
    charge_reading_to,
)


class _Clock:
    """Time passes while nothing else is left to do."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def shares(clock: _Clock) -> ReadingShares:
    return ReadingShares(lambda: clock.now, clock.sleep)


async def _read(shares: ReadingShares, tenant: str, seconds: float) -> None:
    end = await shares.wait_turn(tenant)
    shares.charge_tenant(tenant, seconds)
    end()


async def test_a_tenant_takes_no_more_than_its_share(clock: _Clock, shares: ReadingShares) -> None:
    for _ in range(100):
        await _read(shares, "noisy", 0.1)
    assert SHARE * clock.now + BURST_SECONDS + 0.1 + 1e-3 >= 100 * 0.1


async def test_another_tenant_waits_for_nothing(clock: _Clock, shares: ReadingShares) -> None:
    await _read(shares, "noisy", 60)
    await _read(shares, "quiet", 0.001)
    assert clock.now == 0


async def test_refusals_of_a_tenant_take_no_more_than_its_share(clock: _Clock, shares: ReadingShares) -> None:
    for _ in range(1000):
        await shares.pace_refusal("noisy")
    assert SHARE * clock.now + BURST_SECONDS + 2 * REFUSAL_SECONDS >= 1000 * REFUSAL_SECONDS
    before = clock.now
    await shares.pace_refusal("quiet")
    assert clock.now == before


async def test_small_costs_within_the_share_wait_for_nothing(clock: _Clock, shares: ReadingShares) -> None:
    for _ in range(1000):
        await _read(shares, "one", 0.001)
        clock.now += 0.001 / SHARE
    assert clock.now == pytest.approx(1000 * 0.001 / SHARE)


async def test_bodies_of_one_tenant_are_read_one_after_another_in_order(shares: ReadingShares) -> None:
    order: list[int] = []

    async def one(number: int) -> None:
        end = await shares.wait_turn("noisy")
        order.append(number)
        await asyncio.sleep(0)
        order.append(number)
        end()

    await asyncio.gather(*map(one, range(5)))
    assert order == [number for number in range(5) for _ in range(2)]


async def test_who_leaves_while_it_waits_gives_its_turn_up(clock: _Clock) -> None:
    never = asyncio.Event()

    async def sleep(_: float) -> None:
        await never.wait()

    shares = ReadingShares(lambda: clock.now, sleep)
    await _read(shares, "noisy", 60)
    waiting = asyncio.create_task(_read(shares, "noisy", 0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    clock.now += 60 / SHARE
    await asyncio.wait_for(_read(shares, "noisy", 0), 60)


async def test_tenants_that_took_the_least_are_forgotten(clock: _Clock, shares: ReadingShares) -> None:
    await _read(shares, "noisy", 60)
    for number in range(2 * MAX_TENANTS):
        await _read(shares, str(number), 0.001)
    assert len(shares._tenants) <= MAX_TENANTS
    await _read(shares, "noisy", 0)
    assert clock.now > 0


def test_a_block_within_another_is_charged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 4.0])
    monkeypatch.setattr(reading_shares.time, "thread_time", lambda: next(times))
    charged: list[float] = []
    add: Callable[[float], None] = charged.append
    charge_reading_to(add)
    try:
        with charge_reading(), charge_reading():
            pass
    finally:
        charge_reading_to(None)
    assert charged == [3.0]
