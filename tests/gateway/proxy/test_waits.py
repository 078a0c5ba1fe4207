"""A wait for bytes of a replica ends by the bytes, by an interruption, or by its task's own end."""

import asyncio
from collections.abc import Awaitable

import pytest

from paternoster_gateway.proxy import liveness as module
from paternoster_gateway.proxy.liveness import PROBES, Liveness

URL = "http://e"


async def answer_probe(_: str, __: float) -> bool:
    return True


async def read(liveness: Liveness, bytes_come: Awaitable[bytes], *, interruptible: bool = True) -> bytes:
    with liveness.expect_bytes(URL, interruptible=interruptible):
        return await bytes_come


async def start_reading(
    liveness: Liveness, *, interruptible: bool = True
) -> tuple[asyncio.Task[bytes], "asyncio.Future[bytes]"]:
    bytes_come = asyncio.get_running_loop().create_future()
    reading = asyncio.create_task(read(liveness, bytes_come, interruptible=interruptible))
    await asyncio.sleep(0)
    return reading, bytes_come


async def test_interrupted_wait_is_a_timeout_and_no_cancellation() -> None:
    liveness = Liveness(answer_probe)
    reading, _ = await start_reading(liveness)
    liveness.interrupt_waits(URL)
    liveness.interrupt_waits(URL)
    with pytest.raises(TimeoutError):
        await reading
    assert reading.cancelling() == 0
    await liveness.close()


async def test_wait_that_may_not_be_interrupted_gets_its_bytes() -> None:
    liveness = Liveness(answer_probe)
    reading, bytes_come = await start_reading(liveness, interruptible=False)
    liveness.interrupt_waits(URL)
    bytes_come.set_result(b"piece")
    assert await reading == b"piece"
    await liveness.close()


async def test_interruption_behind_the_end_of_a_wait_does_nothing() -> None:
    liveness = Liveness(answer_probe)
    reading, bytes_come = await start_reading(liveness)
    bytes_come.set_result(b"piece")
    assert await reading == b"piece"
    liveness.interrupt_waits(URL)
    assert reading.cancelling() == 0
    await liveness.close()


@pytest.mark.parametrize("interrupted_first", [True, False])
async def test_task_that_is_cancelled_beside_an_interruption_is_cancelled(interrupted_first: bool) -> None:
    liveness = Liveness(answer_probe)
    reading, _ = await start_reading(liveness)
    for interrupts in (interrupted_first, not interrupted_first):
        if interrupts:
            liveness.interrupt_waits(URL)
        else:
            reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await liveness.close()


async def test_bytes_that_have_come_from_a_hung_replica_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    liveness = Liveness(answer_probe)
    monkeypatch.setattr(liveness, "_hung", {URL})
    with liveness.expect_bytes(URL):
        pass
    with pytest.raises(TimeoutError):
        await read(liveness, asyncio.get_running_loop().create_future())
    await liveness.close()


@pytest.mark.parametrize("late", [True, False])
async def test_probe_that_is_answered_beside_the_last_one_counts(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A starved engine answers, but not within the time of one probe."""
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.3)
    limits, last_asked, hung = list[float](), asyncio.Event(), asyncio.Event()

    async def answer_first_late(_: str, seconds: float) -> bool:
        limits.append(seconds)
        if len(limits) == PROBES:
            last_asked.set()
        if late and len(limits) == 1:
            await last_asked.wait()
            return True
        await asyncio.Event().wait()
        raise AssertionError

    liveness = Liveness(answer_first_late, on_hang=lambda *_: hung.set())
    reading, bytes_come = await start_reading(liveness)
    async with asyncio.timeout(20):
        await last_asked.wait()
        if late:
            while len(limits) == PROBES:
                await asyncio.sleep(0.01)
            assert not hung.is_set()
            bytes_come.set_result(b"piece")
            assert await reading == b"piece"
        else:
            with pytest.raises(TimeoutError):
                await reading
            assert hung.is_set()
    await liveness.close()
