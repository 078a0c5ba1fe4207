"""The work queue in virtual time: every sleep of the event loop is skipped to its end."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.queue import (
    FIRST_BACKOFF_SECONDS,
    LONGEST_BACKOFF_SECONDS,
    QUEUED_KINDS,
    REQUESTED,
    SCHEDULED,
    WorkQueue,
)

Handle = Callable[[str], Awaitable[float | None]]


class SkippingLoop(asyncio.SelectorEventLoop):
    """Time passes only when there is nothing to do, and then at once."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def play(story: Callable[[asyncio.AbstractEventLoop], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(story(runner.get_loop()))  # type: ignore[arg-type]


def queue_of(handle: Handle, loop: asyncio.AbstractEventLoop, workers: int = 3) -> WorkQueue[str]:
    return WorkQueue(handle, workers=workers, clock=loop.time)


def test_a_key_added_often_is_handled_once() -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> None:
        handled = []

        async def handle(key: str) -> None:
            handled.append(key)

        queue = queue_of(handle, loop)
        for _ in range(10):
            queue.add("a")
        queue.add("b")
        queue.start()
        await asyncio.sleep(1)
        assert sorted(handled) == ["a", "b"]
        await queue.stop()

    play(story)


def test_a_key_added_while_it_is_handled_is_handled_again() -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> None:
        spans = []

        async def handle(key: str) -> None:
            begin = loop.time()
            if not spans:
                queue.add(key)
            await asyncio.sleep(5)
            spans.append((begin, loop.time()))

        queue = queue_of(handle, loop)
        queue.add("a")
        queue.start()
        await asyncio.sleep(60)
        assert spans == [(0, 5), (5, 10)]
        await queue.stop()

    play(story)


def test_failures_back_off_and_success_forgets_them(caplog: pytest.LogCaptureFixture) -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> None:
        times: list[float] = []

        async def handle(_: str) -> float:
            times.append(loop.time())
            if len(times) not in (5, 6):
                raise RuntimeError("not yet")
            return 100.0

        queue = queue_of(handle, loop)
        queue.add("a")
        queue.start()
        await asyncio.sleep(250)
        waits = [b - a for a, b in pairwise(times)]
        assert waits[:4] == [FIRST_BACKOFF_SECONDS * 2**n for n in range(4)]
        assert waits[4:7] == [100.0, 100.0, FIRST_BACKOFF_SECONDS]
        await asyncio.sleep(5000)
        assert {b - a for a, b in pairwise(times[-100:])} == {LONGEST_BACKOFF_SECONDS}
        assert len(caplog.records) < 20 < len(times) / 10, "a fault that stays is logged less and less"
        assert queue.alive
        await queue.stop()
        assert not queue.alive

    play(story)


@pytest.mark.parametrize(
    ("fault", "traced"),
    [(ClusterError("PATCH /apis: HTTP 503: away"), False), (RuntimeError("a fault of the operator"), True)],
)
def test_what_the_api_server_refuses_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture, fault: Exception, traced: bool
) -> None:
    """Each fleet of an API server that is away fails: its traceback has fifty lines, and says nothing more."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        async def handle(_: str) -> float:
            raise fault

        queue = queue_of(handle, loop)
        queue.add("a")
        queue.start()
        await asyncio.sleep(0.5)
        await queue.stop()

    play(story)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert str(fault) in record.getMessage()
    assert bool(record.exc_info) is traced


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.lists(st.booleans(), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_a_group_with_many_keys_delays_those_of_others_by_two_each(
    workers: int, quiet: list[bool], periodic: bool, before: bool
) -> None:
    """``quiet`` has other groups, each with a key that is urgent (true) or merely due, a hundred are of one."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        handled: list[str] = []

        async def handle(key: str) -> None:
            handled.append(key)
            await asyncio.sleep(1)

        queue = WorkQueue(handle, workers=workers, clock=loop.time, group=lambda key: key[0])
        many = [(f"b{number}", not periodic) for number in range(100)]
        few = [(f"{number}-quiet", is_urgent) for number, is_urgent in enumerate(quiet)]
        for key, is_urgent in few + many if before else many + few:
            queue.add(key) if is_urgent else queue.add_after(key, 0)
        queue.start()
        await asyncio.sleep(200)
        places = [handled.index(f"{number}-quiet") for number in range(len(quiet))]
        # The kinds take turns; within each kind every group has its turn.
        assert all(place <= 2 * len(quiet) for place in places), handled
        assert [key for key in handled if key[0] == "b"] == [f"b{number}" for number in range(100)]
        await queue.stop()

    play(story)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 30), st.floats(0, 20)), min_size=1, max_size=25),
    st.integers(1, 4),
)
def test_every_request_is_served_after_it_is_due_and_never_two_at_once(
    requests: list[tuple[str, float, float]], workers: int
) -> None:
    """Requests: (key, when it is made, how long it may wait)."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        busy: set[str] = set()
        served: list[tuple[str, float]] = []

        async def handle(key: str) -> None:
            assert key not in busy
            busy.add(key)
            served.append((key, loop.time()))
            await asyncio.sleep(3)
            busy.discard(key)

        queue = queue_of(handle, loop, workers)
        queue.start()
        for key, when, wait in requests:
            loop.call_at(when, queue.add_after, key, wait)
        await asyncio.sleep(500)
        assert len(queue) == 0
        for key, when, _ in requests:
            # Timers fire early by as much as the loop's clock resolves.
            assert any(name == key and time >= when - 1e-6 for name, time in served)
        await queue.stop()

    play(story)


def test_a_key_waits_at_least_as_long_as_its_failure_asks() -> None:
    class Throttled(Exception):
        retry_after_seconds = 7.0

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        times = []

        async def handle(key: str) -> None:
            times.append(loop.time())
            raise Throttled if len(times) == 1 else ValueError

        queue = queue_of(handle, loop)
        queue.add("a")
        queue.start()
        await asyncio.sleep(8)
        assert times == [0, 7], "longer than the first back-off"
        await queue.stop()

    play(story)


def test_waits_are_observed_from_when_a_key_was_due() -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> None:
        waits = []

        async def handle(key: str) -> None:
            await asyncio.sleep(10)

        queue = WorkQueue(handle, workers=1, clock=loop.time, observe=lambda *wait: waits.append(wait))
        queue.start()
        queue.add("first")
        await asyncio.sleep(1)
        queue.add("second")
        queue.add_after("third", 2)
        await asyncio.sleep(5)
        queue.add("second")
        assert queue.find_longest_wait(REQUESTED) == 5
        assert queue.find_longest_wait(SCHEDULED) == 3
        await asyncio.sleep(30)
        assert waits == [(REQUESTED, 0), (SCHEDULED, 7), (REQUESTED, 19)]
        assert [queue.find_longest_wait(kind) for kind in QUEUED_KINDS] == [0, 0]
        await queue.stop()

    play(story)


def test_what_a_queue_without_workers_keeps_does_not_wait() -> None:
    """The queue of a standby: nothing is late there, nor is it once that one takes over."""

    async def story(loop: asyncio.AbstractEventLoop) -> None:
        waits = []

        async def handle(key: str) -> None:
            await asyncio.sleep(1)

        queue = WorkQueue(handle, clock=loop.time, workers=2, observe=lambda *wait: waits.append(wait))
        queue.add("a")
        queue.add_after("b", 2)
        await asyncio.sleep(100)
        assert [queue.find_longest_wait(kind) for kind in QUEUED_KINDS] == [0, 0]
        queue.start()
        assert [queue.find_longest_wait(kind) for kind in QUEUED_KINDS] == [0, 0]
        await asyncio.sleep(5)
        assert waits == [(REQUESTED, 0), (SCHEDULED, 0)]
        await queue.stop()

    play(story)


def test_a_request_for_a_busy_key_waits_for_its_end() -> None:
    async def story(loop: asyncio.AbstractEventLoop) -> None:
        waits = []

        async def handle(key: str) -> None:
            await asyncio.sleep(10)

        queue = WorkQueue(handle, clock=loop.time, observe=lambda *wait: waits.append(wait))
        queue.start()
        queue.add("a")
        await asyncio.sleep(4)
        queue.add("a")
        await asyncio.sleep(10)
        assert waits == [(REQUESTED, 0), (REQUESTED, 6)]
        await queue.stop()

    play(story)
