"""Work of strangers waits for other work of the event loop, twice as long as it took, and where it may not for none."""

import asyncio
from collections import Counter

import pytest

from paternoster_gateway.text_chains import loop_share
from paternoster_gateway.text_chains.loop_share import STARTS_TOGETHER, LoopShare

STEP = 0.001
STEPS = 50


class Clock:
    """Clock of a processor: it goes on with the work that is done, and with nothing else."""

    def __init__(self) -> None:
        self.now = self.others = 0.0

    def perf_counter(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += STEP

    async def work_beside(self) -> None:
        """In each turn of the loop as much as a step."""
        while True:
            self.now += STEP
            self.others += STEP
            await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop_share, "time", clock)
    return clock


def forbid_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", None)


async def test_on_an_idle_loop_steps_follow_one_another(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_timers(monkeypatch)
    share = LoopShare()
    for _ in range(STEPS):
        await share.run(clock.work, ends_when_idle=True)
    assert clock.now == pytest.approx(STEPS * STEP)


async def test_other_work_gets_twice_as_long(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_timers(monkeypatch)
    share, beside = LoopShare(), asyncio.create_task(clock.work_beside())
    for _ in range(STEPS):
        await share.run(clock.work, ends_when_idle=True)
    beside.cancel()
    assert 2 * STEP * (STEPS - 1) <= clock.others <= 3 * STEP * STEPS


async def test_a_pause_is_whole_on_an_idle_loop_otherwise(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(pause: float) -> None:
        pauses.append(pause)

    monkeypatch.setattr(loop_share.asyncio, "sleep", sleep)
    share = LoopShare()
    for _ in range(STEPS):
        await share.run(clock.work)
    assert pauses == [pytest.approx(2 * STEP)] * (STEPS - 1)


async def test_streams_of_a_table_of_many_replicas_do_not_start_in_one_turn_of_the_loop() -> None:
    share, turn, started = LoopShare(), 0, list[int]()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async def start() -> None:
        await share.wait_start()
        started.append(turn)

    counting = asyncio.create_task(count_turns())
    await asyncio.gather(*(start() for _ in range(20)))
    counting.cancel()
    assert max(Counter(started).values()) <= STARTS_TOGETHER < 20
