"""The thread that loads is not there any more when the engine's loop begins."""

import threading

import pytest

from paternoster_engine.server.process import in_a_thread_that_ends


async def test_what_it_gives_and_that_it_is_gone() -> None:
    thread = await in_a_thread_that_ends(threading.current_thread)
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


async def test_what_it_raises() -> None:
    def fail() -> None:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        await in_a_thread_that_ends(fail)
