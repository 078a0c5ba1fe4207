"""Calls that several replicas stopped with have a turn of their own, one at a time for each fleet."""

import asyncio

from paternoster_gateway.proxy.suspicion.probation import Probation, Turn


async def test_a_call_that_comes_as_a_turn_ends_waits_for_the_one_before_it() -> None:
    probation = Probation()
    first, second, third = (Turn(probation, "fleet") for _ in range(3))
    await first.begin_turn()
    waiting = asyncio.create_task(second.begin_turn())
    await asyncio.sleep(0)
    first.end_turn()
    last = asyncio.create_task(third.begin_turn())
    await waiting
    await asyncio.sleep(0.01)
    assert not last.done()
    second.end_turn()
    await last
    third.end_turn()


async def test_a_call_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    probation = Probation()
    first, second, third = (Turn(probation, "fleet") for _ in range(3))
    await first.begin_turn()
    waiting = asyncio.create_task(second.begin_turn())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    second.end_turn()
    first.end_turn()
    await third.begin_turn()
    third.end_turn()
    assert probation.fleets == []


async def test_fleets_do_not_wait_for_each_other() -> None:
    probation = Probation()
    one, other = Turn(probation, "one"), Turn(probation, "other")
    await one.begin_turn()
    await other.begin_turn()
    assert sorted(probation.fleets) == ["one", "other"]
    one.end_turn()
    other.end_turn()
