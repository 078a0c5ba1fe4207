"""Requests start in turn by party, a few in each iteration of the event loop."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paternoster_http.start_turns import STARTS, StartTurns


async def test_another_partys_request_starts_before_a_crowd_that_came_first() -> None:
    turns, order = StartTurns(), list[str]()

    async def start(party: str) -> None:
        await turns.wait_turn((party,))
        order.append(party)

    crowd = [asyncio.create_task(start("crowd")) for _ in range(50 * STARTS)]
    other = asyncio.create_task(start("other"))
    await asyncio.gather(*crowd, other)
    assert order.index("other") <= 2 * STARTS


async def test_what_else_is_ready_runs_between_the_starts() -> None:
    turns, started, seen = StartTurns(), 0, list[int]()

    async def start() -> None:
        nonlocal started
        await turns.wait_turn(("crowd",))
        started += 1

    async def stream() -> None:
        while started < 20 * STARTS:
            seen.append(started)
            await asyncio.sleep(0)

    await asyncio.gather(stream(), *(start() for _ in range(20 * STARTS)))
    assert max(later - before for before, later in pairwise(seen)) <= STARTS


async def test_a_client_that_leaves_gives_its_turn_to_the_next() -> None:
    turns = StartTurns(starts=1)
    first, left, stays = (asyncio.create_task(turns.wait_turn(("a",))) for _ in range(3))
    await asyncio.sleep(0)
    assert [task.done() for task in (first, left, stays)] == [True, False, False]
    left.cancel()
    await asyncio.wait_for(stays, 30)
    assert left.cancelled()


async def test_requests_that_come_one_by_one_never_wait() -> None:
    turns = StartTurns(starts=1)
    for _ in range(5):
        task = asyncio.create_task(turns.wait_turn(("a",)))
        await asyncio.sleep(0)
        assert task.done()
        await asyncio.sleep(0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), st.integers(1, 9))
def test_every_request_that_stays_starts(arrivals: list[tuple[str, bool]], starts: int) -> None:
    async def run() -> None:
        turns = StartTurns(starts)
        tasks = [asyncio.create_task(turns.wait_turn((party,))) for party, _ in arrivals]
        await asyncio.sleep(0)
        for task, (_, leaves) in zip(tasks, arrivals, strict=True):
            if leaves:
                task.cancel()
        done, pending = await asyncio.wait(tasks, timeout=30) if tasks else (set(), set())
        assert not pending
        assert all(task.cancelled() or task.exception() is None for task in done)

    asyncio.run(run())
